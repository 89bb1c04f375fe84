"""`POST /v1/plan`: what would happen to a chat request. Nothing is called."""

from __future__ import annotations

from aiohttp import web

from conductor.api.bodies import BodyGate, parsed
from conductor.api.envelope import REQUEST_ID, json_response
from conductor.api.middleware import KEY, MODEL, declared_cost_weight, declared_label
from conductor.chat.request import ChatRequest
from conductor.core import Body
from conductor.errors import ApiError
from conductor.plan.language import show
from conductor.run.facts import finding_facts, plan_text
from conductor.run.intake import Drafted, Intake, Judged
from conductor.settings import Key


class ExplainHandler:
    """The endpoint; its body is a chat completion request."""

    def __init__(self, intake: Intake, gate: BodyGate) -> None:
        self._intake = intake
        self._gate = gate

    async def __call__(self, request: web.Request) -> web.Response:
        async with self._gate.body(request) as raw:
            chat = await parsed(raw)
            request[MODEL] = chat.model
            body = await explain(
                self._intake,
                chat,
                raw,
                request[KEY],
                declared_label(request),
                request[REQUEST_ID],
                declared_cost_weight(request),
            )
        return json_response(request, body)


async def explain(
    intake: Intake,
    chat: ChatRequest,
    raw: bytes,
    key: Key,
    declared: str | None,
    request_id: str,
    cost_weight: str | None = None,
) -> Body:
    """Label, evidence as counts, a verdict for every worker, and the first round's plan with what
    its engine saw and estimated, or why there is none."""
    judged = await intake.judge(chat, raw, key, declared, cost_weight)
    body: Body = {
        "object": "conductor.plan",
        "model": chat.model,
        "label": judged.policy.lattice.show(judged.label),
        "detectors": finding_facts(judged.scan),
        "unscanned": list(judged.scan.unscanned),
        "ignored_fields": list(chat.ignored),
        "verdicts": _verdicts(judged),
        "cost_weight": judged.cost_weight,
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
        "cards": _cards(drafted),
        "plan": plan_text(drafted),
        "plan_text": show(planned.plan),
        "look": drafted.look,
        "alternates": [drafted.candidates[ordinal].id for ordinal in planned.alternates],
        "estimates": _estimates(drafted),
    }


def _verdicts(judged: Judged) -> list[Body]:
    return [
        {
            "worker": worker,
            "decision": "allow" if verdict.allow else "promise" if verdict.promise else "deny",
            "obligations": [str(one) for one in verdict.promise],
            "shadow": [{"effect": one.effect, "rule": one.rule} for one in verdict.shadow],
            "rule": verdict.rule,
            "position": verdict.position.rpartition("/")[2],  # no path of this machine
            "reason": verdict.reason,
        }
        for worker, verdict in judged.verdicts.items()
    ]


def _cards(drafted: Drafted) -> list[Body]:
    """Every candidate as the engine saw it, with the name that it did not see, and what it thought
    of it: null where it gave no insight or was not shown the worker, which cannot be reached."""
    insight = drafted.planned.insight
    right, chosen = (insight.right, insight.chosen) if insight else ((), ())
    return [
        {
            "worker": worker.id,
            "local": not worker.remote,
            "skill": dict(worker.card.skill),
            "input_usd_per_mtok": worker.price.input_usd_per_mtok,
            "output_usd_per_mtok": worker.price.output_usd_per_mtok,
            "output_tokens_per_s": worker.card.output_tokens_per_s,
            "verbosity": worker.card.verbosity,
            "context_tokens": worker.limits.context_tokens,
            "chance_right": right[place] if place < len(right) else None,
            "chance_chosen": chosen[place] if place < len(chosen) else None,
        }
        for place, worker in enumerate(drafted.candidates)
    ]


def _estimates(drafted: Drafted) -> Body | None:
    """What the engine expects of its plan; None when it does not say."""
    insight = drafted.planned.insight
    if insight is None:
        return None
    return {
        "chance_accept": insight.accept,
        "expected_cost_usd": insight.expected_cost_usd,
        "expected_quality": insight.expected_quality,
    }
