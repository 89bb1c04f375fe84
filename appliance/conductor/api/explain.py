"""`POST /v1/plan`: what would happen to a chat request. Nothing is called."""

from __future__ import annotations

from aiohttp import web

from conductor.api.bodies import BodyGate, parsed
from conductor.api.envelope import REQUEST_ID, json_response
from conductor.api.middleware import KEY, MODEL, declared_label
from conductor.chat.request import ChatRequest
from conductor.core import Body
from conductor.errors import ApiError
from conductor.labels import Lattice
from conductor.plan.language import show
from conductor.run.conduct import plan_text
from conductor.run.intake import Intake
from conductor.settings import Key


class ExplainHandler:
    """The endpoint; its body is a chat completion request."""

    def __init__(self, intake: Intake, lattice: Lattice, gate: BodyGate) -> None:
        self._intake = intake
        self._lattice = lattice
        self._gate = gate

    async def __call__(self, request: web.Request) -> web.Response:
        async with self._gate.body(request) as raw:
            chat = await parsed(raw)
            request[MODEL] = chat.model
            declared = declared_label(request)
            body = await explain(
                self._intake, self._lattice, chat, raw, request[KEY], declared, request[REQUEST_ID]
            )
        return json_response(request, body)


async def explain(
    intake: Intake,
    lattice: Lattice,
    chat: ChatRequest,
    raw: bytes,
    key: Key,
    declared: str | None,
    request_id: str,
) -> Body:
    """Label, evidence as counts, a verdict for every worker, and the plan or why there is none."""
    judged = await intake.judge(chat, raw, key, declared)
    body: Body = {
        "object": "conductor.plan",
        "model": chat.model,
        "label": lattice.show(judged.label),
        "detectors": [
            {"id": f.detector, "count": f.count, "view": f.view} for f in judged.scan.findings
        ],
        "unscanned": list(judged.scan.unscanned),
        "ignored_fields": list(chat.ignored),
        "verdicts": [
            {
                "worker": worker,
                "decision": "allow" if verdict.allow else "deny",
                "rule": verdict.rule,
                "position": verdict.position.rpartition("/")[2],  # no path of this machine
                "reason": verdict.reason,
            }
            for worker, verdict in judged.verdicts.items()
        ],
    }
    try:
        drafted = await intake.draft(chat, judged, request_id)
    except ApiError as error:
        return {**body, "plan": None, "refusal": error.envelope()["error"]}
    planned = drafted.planned
    return {
        **body,
        "engine": planned.engine,
        "engine_where": planned.where,
        "candidates": [worker.id for worker in drafted.candidates],
        "plan": plan_text(drafted),
        "plan_text": show(planned.plan),
        "alternates": [drafted.candidates[ordinal].id for ordinal in planned.alternates],
    }
