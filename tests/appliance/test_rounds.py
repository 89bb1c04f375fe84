"""Rounds over real sockets: look, accept or ask on, and say nothing too early or to too many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conductor.audit.verify import verify
from conductor.plan.language import Plan, parse
from conductor.planner.client import PlannerClient, PlannerState
from conductor.planner.engine import Insight, Planned
from conductor.planner.server import serving
from conductor.settings import Appliance
from support.appliance import REMOTE, Box
from support.leaks import audit_bytes, logged, public_bytes, traces
from support.leaving import FIN, RST, RawClient, metrics, records, worker_status
from support.places import SECRETS
from support.planner import FakePlanner
from support.rounds import FINAL, LOOK, Scripted, Voice, ask, talking
from support.soon import until

TWO, THIRD, KEEP, CHOOSE = "0 q -\n1 q -\n", "2 q -\n", "", "vote 0,1 -\n"
IBAN = SECRETS["iban"]
Patch = pytest.MonkeyPatch


def agreeing(*script: Any) -> Scripted:
    return Scripted(script or [(TWO, LOOK), (KEEP, FINAL)])


def labels(box: Box) -> list[str]:
    """Of the decision and of every further round."""
    found = [*records(box, "decision"), *records(box, "round")]
    return [record["label"] for record in found]


def outcome(box: Box) -> dict[str, Any]:
    (found,) = records(box, "outcome")
    return found


# -- look, then accept or ask on --------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_two_that_agree_are_accepted_and_nobody_else_is_asked(
    monkeypatch: Patch, stream: bool
) -> None:
    engine = agreeing()
    async with talking(monkeypatch, engine, Voice("42"), Voice("It is 42."), abroad=True) as box:
        told = await ask(box, stream=stream)
        assert (told.status, told.text) == (200, "It is 42.")
        assert told.headers["x-conductor-rounds"] == "2"
        assert told.headers["x-conductor-model"] == told.body["model"] == "voice-1"
        assert told.body["usage"]["total_tokens"] == 30
        assert box.vendor.received == b""
        first, second = engine.asked
        assert (first.heard, first.rounds_left, first.calls_left) == ((), 2, 8)
        heard = [(h.step, h.worker, h.answer, h.output_tokens) for h in second.heard]
        assert heard == [(0, 0, "42", 5), (1, 1, "It is 42.", 5)]
        assert (second.rounds_left, second.calls_left, second.max_steps) == (1, 6, 5)
        await until(lambda: records(box, "outcome"))
        assert outcome(box)["rounds"] == 2 and outcome(box)["answer_step"] == 1
        counted = await metrics(box)
        assert counted['conductor_looks_total{engine="default"}'] == 1
        assert counted['conductor_early_accepts_total{engine="default"}'] == 1
        assert counted['conductor_rounds_bucket{le="2.0"}'] == 1
        assert counted['conductor_rounds_bucket{le="1.0"}'] == 0
        assert sum(v for k, v in counted.items() if k.startswith("conductor_plans_total")) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_two_that_differ_are_followed_by_a_third_abroad(
    monkeypatch: Patch, stream: bool
) -> None:
    engine = Scripted([(TWO, LOOK), (THIRD, FINAL)])
    async with talking(monkeypatch, engine, Voice("41"), Voice("42"), abroad=True) as box:
        told = await ask(box, stream=stream)
        assert told.text.startswith("[simulated]") and "4" not in told.text
        assert told.headers["x-conductor-model"] == REMOTE
        assert len(box.vendor.requests) == 1
        assert json.loads(box.vendor.requests[0].body).get("stream", False) is stream
        assert [step["round"] for step in told.trace["steps"]] == [0, 0, 1]
        assert [one["look"] for one in told.trace["rounds"]] == [True, False]
        (sent,) = records(box, "egress")
        (decision,), (round_,) = records(box, "decision"), records(box, "round")
        assert decision["seq"] < round_["seq"] < sent["seq"] and sent["step"] == 2
        assert round_["round"] == 1 and round_["decision_id"] == decision["decision_id"]
        assert round_["plan"] == [{"worker": REMOTE, "access": "q"}]
        assert (round_["engine"], round_["engine_where"], round_["look"]) == (
            "default", "serve", False,
        )  # fmt: skip
        assert [one["worker"] for one in round_["heard"]] == ["voice-0", "voice-1"]
        report = verify(box.site.appliance.paths.audit)
        assert report.ok and report.events["round"] == 1


async def test_a_vote_chooses_among_all_that_was_heard(monkeypatch: Patch) -> None:
    engine = Scripted([(TWO, LOOK), ("2 q -\n", LOOK), ("vote 0,1,2 -\n", FINAL)])
    async with talking(monkeypatch, engine, Voice("7"), Voice("8"), Voice("It is 7.")) as box:
        told = await ask(box)
        assert told.text == "7" and told.headers["x-conductor-model"] == "vote"
        assert told.headers["x-conductor-rounds"] == "3"
        assert engine.asked[2].rounds_left == 0 and len(engine.asked) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_vote_for_one_accepts_its_answer_as_its_workers(
    monkeypatch: Patch, stream: bool
) -> None:
    engine = Scripted([(TWO, LOOK), ("vote 0 -\n", FINAL)])
    async with talking(monkeypatch, engine, Voice("seven"), Voice("8")) as box:
        told = await ask(box, stream=stream)
        assert (told.text, told.headers["x-conductor-model"]) == ("seven", "voice-0")


async def test_a_later_step_is_shown_what_an_earlier_round_answered(monkeypatch: Patch) -> None:
    engine = Scripted([("0 q -\n", LOOK), ("1 q,0 Check it.\n2 0,1 -\n", FINAL)])
    voices = Voice("the draft"), Voice("the check"), Voice("the end")
    async with talking(monkeypatch, engine, *voices) as box:
        assert (await ask(box)).text == "the end"
        assert "Result of step 1:\nthe draft" in str(voices[1].bodies[0]["messages"][-1]["content"])
        shown = voices[2].bodies[0]["messages"][-1]["content"]
        assert "Result of step 1:\nthe draft" in shown
        assert "Result of step 2 (its task: Check it.):\nthe check" in shown


async def test_a_look_in_the_last_round_is_not_to_be_had(monkeypatch: Patch) -> None:
    """The engine that asks for it breaks a rule, and the plan of the daemon itself is taken."""
    rogue, own = Scripted([("0 q -\n", LOOK)], "rogue"), Scripted([("1 q -\n", FINAL)])
    async with talking(monkeypatch, own, Voice("first"), Voice("second")) as box:
        async with planner(box, rogue):
            told = await ask(box)
        assert told.text == "second" and told.headers["x-conductor-rounds"] == "3"
        assert told.headers["x-conductor-engine"] == "default@serve"
        assert len(rogue.asked) == 3


async def test_without_further_rounds_nothing_is_looked_at(monkeypatch: Patch) -> None:
    engine = Scripted([("1 q -\n", FINAL)])
    limits = {"limits": {"max_rounds": 1}}
    async with talking(monkeypatch, engine, Voice("a"), Voice("b"), appliance=limits) as box:
        assert (await ask(box)).headers["x-conductor-rounds"] == "1"
        assert engine.asked[0].rounds_left == 0


async def test_what_a_single_worker_must_answer_is_not_compared(monkeypatch: Patch) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    engine = Scripted([("0 q -\n", FINAL)])
    async with talking(monkeypatch, engine, Voice("a")) as box:
        assert (await ask(box, tools=tools)).status == 200
        assert engine.asked[0].rounds_left == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_an_accepted_answer_is_bounded_and_ends_as_the_client_asked(
    monkeypatch: Patch, stream: bool
) -> None:
    voice = Voice("one two", finish="length")
    async with talking(monkeypatch, Scripted([("0 q -\n", LOOK), (KEEP, FINAL)]), voice) as box:
        told = await ask(box, stream=stream, max_tokens=2, stop=["three"])
        assert (voice.bodies[0]["max_tokens"], voice.bodies[0]["stop"]) == (2, ["three"])
        assert '"finish_reason":"length"' in told.raw


async def test_a_refusal_is_heard_and_given_as_one(monkeypatch: Patch) -> None:
    engine = Scripted([("0 q -\n", LOOK), (KEEP, FINAL)])
    voice = Voice("", message={"content": None, "refusal": "I must not."})
    async with talking(monkeypatch, engine, voice) as box:
        told = await ask(box)
        assert engine.asked[1].heard[0].answer == "I must not."
        assert told.body["choices"][0]["message"]["refusal"] == "I must not."
        assert told.body["choices"][0]["message"]["content"] is None


# -- nothing before it is accepted ------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "given", "withheld"),
    [(KEEP, "BRAVO", ["ALPHA", "simulated"]), (THIRD, "simulated", ["ALPHA", "BRAVO"])],
)
async def test_no_byte_of_an_answer_is_sent_before_it_is_accepted(
    monkeypatch: Patch, last: str, given: str, withheld: list[str]
) -> None:
    monkeypatch.setattr("conductor.api.chat.KEEP_ALIVE_S", 0.02)
    gate, engine = asyncio.Event(), Scripted([(TWO, LOOK), (last, FINAL)])
    engine.gates[1] = asyncio.Event()
    voices = Voice("ALPHA"), Voice("BRAVO", gate=gate)
    hold = {"api": {"hold_s": 0.02}}
    async with talking(monkeypatch, engine, *voices, appliance=hold, abroad=True) as box:
        client = await RawClient.ask(box.server.port, "conductor", stream=True)
        await client.until(b": keep-alive")
        assert b"data:" not in client.text
        await until(lambda: voices[0].bodies and voices[1].bodies)
        await comments_alone(client)
        gate.set()
        await until(lambda: len(engine.asked) == 2)
        await comments_alone(client)
        engine.gates[1].set()
        await client.until(b"[DONE]")
        answer = client.text.decode()
        assert given in answer and not any(word in answer for word in withheld)
        client.leave()


async def comments_alone(client: RawClient) -> None:
    """Three further comments come, and nothing but comments."""
    for _ in range(3):
        client.text = b""
        await client.until(b": keep-alive")
        assert b"data:" not in client.text


# -- labels -----------------------------------------------------------------------------------


async def test_an_answer_that_raises_the_label_keeps_the_next_round_at_home(
    monkeypatch: Patch,
) -> None:
    engine = Scripted([(TWO, LOOK), ("1 q,0 Say it again.\n", FINAL)])
    async with talking(
        monkeypatch, engine, Voice(f"It is {IBAN}."), Voice("no"), abroad=True
    ) as box:
        told = await ask(box)
        assert told.status == 200 and box.vendor.received == b""
        assert [c.local for c in engine.asked[0].candidates] == [True, True, False]
        assert [c.local for c in engine.asked[1].candidates] == [True, True]
        assert labels(box) == ["internal", "confidential+payment+pii"]
        (round_,) = records(box, "round")
        assert round_["verdicts"][REMOTE] == [False, "floor.clearance"]
        assert round_["heard"][0]["label"] == "confidential+payment+pii"
        assert told.trace["steps"][-1]["label"] == "confidential+payment+pii"
        # the answer's: whoever files it by this header must not file it too low
        assert told.headers["x-conductor-label"] == "confidential+payment+pii"
        assert told.trace["label"] == "internal"


async def test_an_answer_that_raises_no_label_does_not(monkeypatch: Patch) -> None:
    engine = Scripted([(TWO, LOOK), ("2 q,0 Say it again.\n", FINAL)])
    async with talking(
        monkeypatch, engine, Voice("It is Wednesday."), Voice("no"), abroad=True
    ) as box:
        await ask(box)
        assert b"It is Wednesday." in box.vendor.requests[0].body
        assert labels(box) == ["internal", "internal"]


async def test_the_planner_that_names_who_is_no_candidate_any_more_is_not_obeyed(
    monkeypatch: Patch,
) -> None:
    """Whoever wrote the plan may have been told to by the answer itself."""
    rogue, own = Scripted([(TWO, LOOK), ("2 q,0 Send it.\n", FINAL)]), Scripted([(KEEP, FINAL)])
    async with talking(monkeypatch, own, Voice(f"It is {IBAN}."), Voice("no"), abroad=True) as box:
        async with planner(box, rogue):
            told = await ask(box)
        assert (told.status, told.text, box.vendor.received) == (200, "no", b"")
        assert told.headers["x-conductor-engine"] == "default@serve"


async def test_a_secret_dealt_out_over_two_answers_keeps_the_next_round_at_home(
    monkeypatch: Patch,
) -> None:
    """Each of them is harmless. Together they are what the plan was made from."""
    engine = Scripted([(TWO, LOOK), ("0 - Say something.\n", FINAL)])
    async with talking(monkeypatch, engine, Voice(IBAN[:13]), Voice(IBAN[13:]), abroad=True) as box:
        await ask(box)
        assert [c.local for c in engine.asked[1].candidates] == [True, True]
        assert labels(box)[1] == "confidential+payment+pii"


async def test_who_answered_and_is_no_candidate_any_more_is_nobody_to_the_planner(
    monkeypatch: Patch,
) -> None:
    engine = Scripted([("0 q -\n1 q -\n2 q -\n", LOOK), (KEEP, FINAL)])
    async with talking(
        monkeypatch, engine, Voice("a"), Voice(f"It is {IBAN}."), abroad=True
    ) as box:
        told = await ask(box)
        assert [heard.worker for heard in engine.asked[1].heard] == [0, 1, None]
        assert told.headers["x-conductor-model"] == REMOTE  # what it said before stands


async def test_when_nobody_may_see_what_was_heard_the_answer_is_kept_unasked(
    monkeypatch: Patch,
) -> None:
    lower = {"destinations": {"box": {"clearance": {"level": "internal", "compartments": []}}}}
    engine = Scripted([("0 q -\n", LOOK)])
    async with talking(monkeypatch, engine, Voice(f"It is {IBAN}."), policy=lower) as box:
        told = await ask(box)
        assert (told.status, told.text) == (200, f"It is {IBAN}.")
        assert told.headers["x-conductor-engine"] == "kept@serve" and len(engine.asked) == 1
        assert told.headers["x-conductor-label"] == "confidential+payment+pii"


async def test_no_word_that_was_heard_is_in_audit_log_metrics_or_status(
    monkeypatch: Patch,
) -> None:
    engine = Scripted([(TWO, LOOK), ("1 q,0 -\n", FINAL)])
    with logged() as log:
        async with talking(
            monkeypatch, engine, Voice(f"It is {IBAN}."), Voice("no"), abroad=True
        ) as box:
            await ask(box)
            where = {**await public_bytes(box), "audit": audit_bytes(box)}
    assert traces(IBAN, **where, log=log.getvalue().encode()) == []


# -- what goes wrong --------------------------------------------------------------------------


async def test_one_of_a_round_that_fails_is_heard_as_nothing(monkeypatch: Patch) -> None:
    engine = agreeing()
    async with talking(monkeypatch, engine, Voice("42"), Voice("", status=500)) as box:
        told = await ask(box)
        assert told.text == "42" and told.headers["x-conductor-model"] == "voice-0"
        assert [h.answer for h in engine.asked[1].heard] == ["42", ""]
        assert told.trace["steps"][1]["attempts"][0]["outcome"] == "server_error"


async def test_a_first_round_of_which_nothing_came_is_the_error_of_its_failure(
    monkeypatch: Patch,
) -> None:
    engine = agreeing()
    async with talking(monkeypatch, engine, *(Voice("", status=429) for _ in "ab")) as box:
        told = await ask(box)
        assert (told.status, told.body["error"]["code"]) == (503, "overloaded")
        assert int(told.headers["retry-after"]) >= 1
        await until(lambda: records(box, "outcome"))
        assert len(engine.asked) == 1 and outcome(box)["rounds"] == 1


async def test_a_second_look_of_which_nothing_came_leaves_what_stood(monkeypatch: Patch) -> None:
    engine = Scripted([("0 q -\n", LOOK), ("1 q -\n", LOOK), (KEEP, FINAL)])
    async with talking(monkeypatch, engine, Voice("42"), Voice("", status=500)) as box:
        told = await ask(box)
        assert told.text == "42" and told.headers["x-conductor-rounds"] == "3"
        assert [h.answer for h in engine.asked[2].heard] == ["42", ""]


@pytest.mark.parametrize(
    ("remote", "code", "stream"),
    [
        ("status-500", "upstream_error", False),
        ("cut-before-head", "upstream_error", True),
        ("status-429", "overloaded", True),
        ("status-400", "invalid_request_error", False),
        ("cut-before-body", "upstream_error", False),
    ],
)
async def test_a_final_round_that_fails_before_its_first_byte_gives_what_stands(
    monkeypatch: Patch, remote: str, code: str, stream: bool
) -> None:
    engine = Scripted([("0 q -\n", LOOK), ("1 q -\n", FINAL)])
    async with talking(monkeypatch, engine, Voice("42"), remote=remote, abroad=True) as box:
        told = await ask(box, stream=stream)
        assert (told.status, told.text) == (200, "42")
        assert told.headers["x-conductor-model"] == "voice-0" and box.vendor.requests
        assert told.trace["stood_in_for"] == code
        assert told.trace["answer_step"] == 0
        await until(lambda: records(box, "outcome"))
        assert outcome(box)["outcome"] == "completed" and outcome(box)["answer_step"] == 0
        assert (await metrics(box))["conductor_stood_in_total"] == 1


async def test_a_final_round_that_breaks_off_is_an_error_and_nothing_follows(
    monkeypatch: Patch,
) -> None:
    engine = Scripted([("0 q -\n", LOOK), ("1 q -\n", FINAL)])
    async with talking(monkeypatch, engine, Voice("EARLIER"), Voice("one two", cut=True)) as box:
        told = await ask(box, stream=True)
        assert "one" in told.text and "EARLIER" not in told.raw
        assert told.body["error"]["code"] == "upstream_error" and "[DONE]" not in told.raw


@pytest.mark.parametrize("limits", [{"max_calls": 1}, {"max_cost_usd": 0}], ids=["calls", "money"])
async def test_when_the_budget_ends_between_rounds_what_stands_is_given(
    monkeypatch: Patch, limits: dict[str, float]
) -> None:
    engine = Scripted([("0 q -\n", LOOK), Planned(Plan(parse("1 q -\n").steps, 1), "default")])
    monkeypatch.setattr("conductor.planner.wire.check", lambda planned, request: planned)
    async with talking(
        monkeypatch, engine, Voice("42"), appliance={"limits": limits}, abroad=True
    ) as box:
        told = await ask(box)
        assert (told.status, told.text) == (200, "42")
        assert told.trace["stood_in_for"] == "insufficient_quota"
        assert box.vendor.received == b""


async def test_when_the_budget_ends_within_a_look_what_was_answered_is_heard(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr("conductor.planner.wire.check", lambda planned, request: planned)
    engine = agreeing()
    limits = {"limits": {"max_calls": 1}}
    async with talking(monkeypatch, engine, Voice("a"), Voice("b"), appliance=limits) as box:
        told = await ask(box)
        assert told.text == "a" and engine.asked[1].calls_left == 0
        assert [h.answer for h in engine.asked[1].heard] == ["a", ""]


# -- the planner between rounds ---------------------------------------------------------------


@asynccontextmanager
async def planner(box: Box, engine: Scripted | FakePlanner) -> AsyncIterator[None]:
    """A planner on the box's socket, of which the box knows."""
    socket = box.site.appliance.paths.planner_socket
    server = engine.serving(socket) if isinstance(engine, FakePlanner) else serving(socket, engine)
    async with server:
        await until(lambda: box.server.parts.planner.state in (PlannerState.UP, PlannerState.TRIAL))
        yield


@pytest.fixture(autouse=True)
def attentive(monkeypatch: Patch) -> None:
    """Have `serve` look at its planner often."""

    def made(appliance: Appliance) -> PlannerClient:
        from conductor.run import services

        return PlannerClient(
            appliance.paths.planner_socket,
            appliance.planner.timeout_s,
            services.DefaultEngine(),
            rest_s=0.02,
        )

    monkeypatch.setattr("conductor.run.services.make_planner", made)


async def test_a_planner_process_is_asked_round_by_round(monkeypatch: Patch) -> None:
    engine = Scripted([(TWO, LOOK), (CHOOSE, FINAL)], "scripted")
    async with talking(monkeypatch, Scripted([ValueError()]), Voice("7"), Voice("seven")) as box:
        async with planner(box, engine):
            told = await ask(box)
        assert told.headers["x-conductor-engine"] == "scripted@planner"
        assert told.text == "7" and [len(one.heard) for one in engine.asked] == [0, 2]


@pytest.mark.parametrize("way", ["dies", "hangs", "breaks", "junk"])
async def test_a_planner_that_fails_between_rounds_leaves_what_stands(
    monkeypatch: Patch, way: str
) -> None:
    from conductor.planner.default import DefaultEngine

    engine = Scripted([(TWO, LOOK), RuntimeError() if way == "breaks" else ("9 q -\n", FINAL)])
    if way == "hangs":
        engine.gates[1] = asyncio.Event()
    gate = asyncio.Event()
    timeout = {"planner": {"timeout_s": 1.0}}
    async with talking(
        monkeypatch, engine, Voice("first"), Voice("second", gate=gate), appliance=timeout
    ) as box:
        monkeypatch.setattr(box.server.parts.planner, "_fallback", DefaultEngine())
        async with planner(box, engine):
            asking = asyncio.create_task(ask(box))
            await until(lambda: len(engine.asked) == 1)
            if way != "dies":
                gate.set()
                told = await asking
        if way == "dies":
            gate.set()
            told = await asking
        assert (told.status, told.text) == (200, "second")
        assert told.headers["x-conductor-engine"] == "default@serve"
        assert told.headers["x-conductor-rounds"] == "2"
        await until(lambda: records(box, "outcome"))
        assert outcome(box)["stood_in_for"] is None


# -- leaving ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("stream", "way"), [(False, FIN), (True, RST)])
@pytest.mark.parametrize("window", ["first round", "planning", "second round"])
async def test_a_client_that_leaves_in_any_round_ends_it(
    monkeypatch: Patch, window: str, stream: bool, way: str
) -> None:
    engine, shut = Scripted([(TWO, LOOK), (THIRD, FINAL)]), asyncio.Event()
    if window == "planning":
        engine.gates[1] = shut
    voices = Voice("a"), Voice("b", gate=shut if window == "first round" else None)
    async with talking(monkeypatch, engine, *voices, remote="stall", abroad=True) as box:
        client = await RawClient.ask(box.server.port, "conductor", stream=stream)
        if window == "first round":
            await until(lambda: voices[1].bodies)
        elif window == "planning":
            await until(lambda: len(engine.asked) == 2)
        else:
            await until(lambda: box.vendor.requests)
        client.leave(way)
        await until(lambda: records(box, "outcome"))
        found = outcome(box)
        assert (found["outcome"], found["stood_in_for"]) == ("aborted", None)
        assert found["rounds"] == (2 if window == "second round" else 1)
        if window == "first round":
            await asyncio.wait_for(voices[1].left.wait(), 30)
        if window == "second round":
            await until(lambda: box.vendor.requests[0].aborted)
        for worker in ("voice-0", "voice-1", REMOTE):
            status = worker_status(box, worker)
            assert (status["in_flight"], status["queued"]) == (0, 0)
        assert (len(records(box, "egress")) == 1) is (window == "second round")
        assert (await metrics(box))["conductor_requests_in_flight"] == 0


# -- what the operator and the client say -----------------------------------------------------


async def test_a_model_name_stands_for_a_cost_weight(monkeypatch: Patch) -> None:
    engine = Scripted([("0 q -\n", FINAL)])
    own = {"planner": {"cost_weight": {"thrifty": 2.5}}}
    names = {"": 0.03, "-local": 0.03, "-thrifty": 2.5, "-quality": 0.01}
    async with talking(monkeypatch, engine, Voice("a"), appliance=own) as box:
        for name in names:
            await ask(box, model=f"conductor{name}")
        assert [one.cost_weight for one in engine.asked] == list(names.values())


KEYS = {
    "keys": [
        {"id": "app", "secret": "file:app.key", "set_cost_weight": True},
        {"id": "trusted-app", "secret": "file:trusted-app.key"},
    ]
}


async def test_a_key_that_may_sets_the_cost_weight_of_a_request(monkeypatch: Patch) -> None:
    engine = Scripted([("0 q -\n", LOOK), (KEEP, FINAL)])
    async with talking(monkeypatch, engine, Voice("a"), appliance=KEYS) as box:
        told = await ask(box, headers={"x-conductor-cost-weight": "0.25"})
        assert told.status == 200
        assert [one.cost_weight for one in engine.asked] == [0.25, 0.25]


async def test_a_key_that_may_not_is_refused(monkeypatch: Patch) -> None:
    engine = Scripted([("0 q -\n", FINAL)])
    async with talking(monkeypatch, engine, Voice("a")) as box:
        told = await ask(box, headers={"x-conductor-cost-weight": "0.25"})
        assert (told.status, told.body["error"]["code"]) == (403, "cost_weight_not_allowed")
        assert told.headers["x-should-retry"] == "false" and engine.asked == []


async def test_what_is_no_cost_weight_is_a_bad_request_and_not_repeated(
    monkeypatch: Patch,
) -> None:
    engine = Scripted([("0 q -\n", FINAL)])
    wrong = ["", "-1", "nan", "inf", "1e3", "0x1", "1001", "0.1, 0.2", "٣", "1" * 9000]
    async with talking(monkeypatch, engine, Voice("a"), appliance=KEYS) as box:
        for said in wrong:
            told = await ask(box, headers={"x-conductor-cost-weight": said})
            assert (told.status, engine.asked) == (400, []), said
            assert "1111" not in told.raw


async def test_a_body_says_nothing_about_cost_or_rounds(monkeypatch: Patch) -> None:
    engine = Scripted([("0 q -\n", FINAL)])
    async with talking(monkeypatch, engine, Voice("a"), appliance=KEYS) as box:
        told = await ask(box, cost_weight=9, rounds_left=9, max_rounds=9)
        assert told.status == 200
        assert (engine.asked[0].cost_weight, engine.asked[0].rounds_left) == (0.03, 2)


# -- explaining -------------------------------------------------------------------------------

INSIGHT = Insight((0.5, 0.75), (0.25, 1.0), 0.125, 0.000012, 0.8125)


async def test_an_explanation_shows_what_the_engine_saw_and_thought(monkeypatch: Patch) -> None:
    engine = Scripted([Planned(parse("0 q -\n"), "default", look=True, insight=INSIGHT)])
    async with talking(monkeypatch, engine, Voice("a")) as box, box.http() as http:
        body = {"model": "conductor", "messages": [{"role": "user", "content": "What?"}]}
        told = (await http.post("/v1/plan", json=body)).json()
        assert told["look"] is True and told["cost_weight"] == 0.03
        assert told["estimates"] == {
            "chance_accept": 0.125, "expected_cost_usd": 0.000012, "expected_quality": 0.8125,
        }  # fmt: skip
        near, far = told["cards"]
        assert (near["worker"], near["local"], near["skill"]) == ("voice-0", True, {"general": 0.8})
        assert (near["chance_right"], near["chance_chosen"]) == (0.5, 0.25)
        assert (far["worker"], far["output_usd_per_mtok"]) == (REMOTE, 4.0)
        assert (far["chance_right"], far["chance_chosen"]) == (0.75, 1.0)
        assert "voice-0" not in repr(engine.asked) and REMOTE not in repr(engine.asked)
        assert box.vendor.received == b""


async def test_an_engine_without_insight_is_explained_without(monkeypatch: Patch) -> None:
    async with talking(monkeypatch, Scripted([("0 q -\n", FINAL)]), Voice("a")) as box:
        async with box.http() as http:
            body = {"model": "conductor", "messages": [{"role": "user", "content": "What?"}]}
            told = (await http.post("/v1/plan", json=body)).json()
        assert told["estimates"] is None and told["look"] is False
        assert [card["chance_right"] for card in told["cards"]] == [None, None]
