"""What a model at home makes known, a later step's model abroad must not be shown.

The questions here are harmless. The secret first appears in what a local worker answers, and each
plan goes on to show that answer to the remote worker.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from conductor.core import PlanRequest
from conductor.plan.language import parse
from conductor.planner.engine import Planned
from support import rawpeer
from support.appliance import REMOTE, Box, appliance
from support.configs import local_worker, remote_worker
from support.leaks import audit_bytes, logged, public_bytes, traces
from support.places import SECRETS, user

QUESTION = "Which account is it?"
IBAN = SECRETS["iban"]
FIRST, SECOND = IBAN[:13], IBAN[13:]

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a sentence": "It is {}, of course.".format,
    "JSON": lambda s: json.dumps({"accounts": [s]}),
    "JSON in JSON": lambda s: json.dumps({"a": json.dumps({"b": s})}),
    "base64": lambda s: base64.b64encode(f"it is {s}".encode()).decode(),
    "hexadecimal": lambda s: s.encode().hex(),
    "full width": lambda s: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in s),
    "zero width": "\u200b".join,
    "after much else": lambda s: "word " * 20_000 + s,
}

ASK_THEN_COMBINE = "1 q -\n0 0 Say it again.\n"
ASK_THEN_COMBINE_WITH_QUESTION = "1 q -\n0 q,0 Say it again.\n"
BY_WAY_OF_A_VOTE = "1 q -\n2 q -\nvote 0,1 -\n0 2 Say it again.\n"
BY_WAY_OF_ANOTHER = "1 q -\n2 0 Shorten it.\n0 1 Say it again.\n"
BESIDE_ANOTHER = "1 q -\n0 q -\n0 q,0,1 Combine them.\n"
TWO_HALVES = "1 q -\n2 q -\n0 0,1 Combine them.\n"
TWO_HALVES_APART = "1 q -\n0 q -\n2 q -\n0 0,1,2 Combine them.\n"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have every question planned so. Worker 0 is remote, 1 and 2 are local."""

    class Engine:
        name = "default"
        text = ""

        async def ready(self) -> bool:
            return True

        async def plan(self, request: PlanRequest) -> Planned:
            stand_ins = tuple(range(len(request.candidates)))
            return Planned(parse(self.text), self.name, stand_ins)

    monkeypatch.setattr("conductor.run.services.DefaultEngine", Engine)
    return lambda text: setattr(Engine, "text", text)


@asynccontextmanager
async def saying(first: str, second: str = "nothing") -> AsyncIterator[Box]:
    """An appliance whose two local workers answer everything with these words."""
    async with AsyncExitStack() as stack:
        pool = [remote_worker(REMOTE, "{vendor}", model="ok", limits={"context_tokens": 100_000})]
        for name, text in (("local-1", first), ("local-2", second)):
            choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
            answer = rawpeer.plain(json.dumps({"choices": [choice]}).encode())
            peer = await stack.enter_async_context(rawpeer.serving(rawpeer.answering(answer)))
            port = peer.endpoint.port  # type: ignore[union-attr]
            pool.append(local_worker(name, port=port, limits={"context_tokens": 100_000}))
        yield await stack.enter_async_context(appliance(workers=pool))


async def ask(box: Box, question: str = QUESTION) -> dict[str, Any]:
    """The trace of an answered request."""
    async with box.http() as http:
        answer = await http.post(
            "/v1/chat/completions",
            json={"model": "conductor", **user(question)},
            headers={"x-conductor-trace": "true"},
        )
    assert answer.status_code == 200
    trace: dict[str, Any] = answer.json()["conductor"]
    return trace


PLANS = (
    ASK_THEN_COMBINE,
    ASK_THEN_COMBINE_WITH_QUESTION,
    BY_WAY_OF_A_VOTE,
    BY_WAY_OF_ANOTHER,
    BESIDE_ANOTHER,
)


@pytest.mark.parametrize("plan", PLANS)
async def test_an_answer_with_a_secret_is_not_shown_abroad(
    plans: Callable[[str], None], plan: str
) -> None:
    plans(plan)
    async with saying(f"It is {IBAN}.") as box:
        trace = await ask(box)
        asked_before = plan.count("0 q -")
        assert len(box.vendor.requests) == asked_before
        assert traces(IBAN, vendor=box.vendor.received) == []
        last = trace["steps"][-1]
        assert last["label"] == "confidential+payment+pii"
        assert {"worker": REMOTE, "outcome": "denied", "ms": 0} in last["attempts"]
        assert last["worker"] == "local-1"


@pytest.mark.parametrize("plan", PLANS)
async def test_an_answer_without_one_is_shown(plans: Callable[[str], None], plan: str) -> None:
    plans(plan)
    async with saying("It is Wednesday.", "It is Wednesday.") as box:
        trace = await ask(box)
        assert trace["steps"][-1]["worker"] == REMOTE
        assert b"It is Wednesday." in box.vendor.requests[-1].body


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_no_spelling_of_it_gets_out(plans: Callable[[str], None], spelling: str) -> None:
    plans(ASK_THEN_COMBINE)
    async with saying(SPELLINGS[spelling](IBAN)) as box:
        await ask(box)
        assert box.vendor.received == b""


@pytest.mark.parametrize("secret", SECRETS.values(), ids=list(SECRETS))
async def test_no_kind_of_secret_gets_out(plans: Callable[[str], None], secret: str) -> None:
    plans(ASK_THEN_COMBINE)
    async with saying(f"Here: {secret}") as box:
        await ask(box)
        assert box.vendor.received == b""


async def test_halves_dealt_out_over_two_answers_stay_here(plans: Callable[[str], None]) -> None:
    for plan in (TWO_HALVES, TWO_HALVES_APART):
        plans(plan)
        async with saying(FIRST, SECOND) as box:
            await ask(box)
            assert SECOND.encode() not in box.vendor.received


async def test_halves_dealt_out_over_question_and_answer_stay_here(
    plans: Callable[[str], None],
) -> None:
    for plan in (ASK_THEN_COMBINE_WITH_QUESTION, BESIDE_ANOTHER):
        plans(plan)
        async with saying(SECOND) as box:
            await ask(box, f"Go on from {FIRST}")
            assert SECOND.encode() not in box.vendor.received


async def test_when_no_other_model_may_see_it_the_request_is_refused(
    plans: Callable[[str], None],
) -> None:
    """Its own worker at home is not cleared for what it said itself: nobody is left."""
    plans(ASK_THEN_COMBINE)
    lower = {"destinations": {"box": {"clearance": {"level": "internal", "compartments": []}}}}
    answer = rawpeer.plain(
        json.dumps(
            {"choices": [{"index": 0, "message": {"content": IBAN}, "finish_reason": "stop"}]}
        ).encode()
    )
    async with rawpeer.serving(rawpeer.answering(answer)) as peer:
        port = peer.endpoint.port  # type: ignore[union-attr]
        pool = [remote_worker(REMOTE, "{vendor}", model="ok"), local_worker("local-1", port=port)]
        async with appliance(workers=pool, policy=lower) as box, box.http() as http:
            body = {"model": "conductor", **user(QUESTION)}
            refused = await http.post("/v1/chat/completions", json=body)
            assert refused.status_code == 403
            assert refused.json()["error"]["code"] == "sensitivity_blocked"
            assert IBAN not in refused.text
            assert box.vendor.received == b""


async def test_an_answer_leaves_no_trace_in_audit_logs_metrics_or_status(
    plans: Callable[[str], None],
) -> None:
    plans(BESIDE_ANOTHER)
    with logged() as log:
        async with saying(f"It is {IBAN}.") as box:
            await ask(box)
            where = {**await public_bytes(box), "audit": audit_bytes(box)}
    assert traces(IBAN, **where, log=log.getvalue().encode()) == []


@pytest.mark.parametrize("plan", PLANS)
async def test_the_vendor_cannot_tell_what_home_answered(
    plans: Callable[[str], None], plan: str
) -> None:
    plans(plan)
    bodies = []
    for secret in (IBAN, SECRETS["aws"]):
        async with saying(f"It is {secret}.") as box:
            await ask(box)
            bodies.append([request.body for request in box.vendor.requests])
    assert bodies[0] == bodies[1]
