"""One request from label to outcome: however it ends, it is recorded once and paid once."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor.core import Failure
from conductor.errors import (
    ApiError,
    AuditUnavailable,
    BudgetExhausted,
    LabelNotAllowed,
    ModelNotFound,
    PolicyBlocked,
    UpstreamTimeout,
    WorkerError,
)
from conductor.run.conduct import Conducted
from conductor.settings import Key, RequestLimits
from support.fakes import ROOMY, Act, Kit, kit, parsed, settled

IBAN = "IT60X0542811101000000123456"
LOCAL, REMOTE, THREE = "0 q -\n", "2 q -\n", "0 q -\n2 q -\n1 0,1 -\n"


async def conduct(
    box: Kit,
    state: Conducted | None = None,
    *,
    key: Key | None = None,
    declared: str | None = None,
    leaves: BaseException | None = None,
    **fields: Any,
) -> None:
    """Send one request and read its answer; with `leaves`, raise that after the first piece."""
    request, text = parsed(**fields)
    given = state or Conducted("req_1")
    async with box.conduct.answer(given, request, text, key or box.key, declared) as answer:
        if leaves is not None:
            if answer.chunks is not None:
                await anext(answer.chunks)
            raise leaves
        if answer.chunks is not None:
            async for _ in answer.chunks:
                pass


def closed(box: Kit, outcome: str) -> dict[str, Any]:
    """The outcome record, after checking that all is settled and recorded exactly once."""
    assert box.audit.counts["decision"] == box.audit.counts["outcome"] == 1
    order = [record.event for record in box.audit.records]
    assert order[0] == "decision" and order[-1] == "outcome"
    (decision,), (found,) = box.audit.events("decision"), box.audit.events("outcome")
    assert decision["decision_id"] == found["decision_id"] and decision["request_id"] == "req_1"
    assert found["outcome"] == outcome
    account = box.ledger._accounts["app"]
    assert account.reserved_musd == 0 and account.spent_musd == found["cost_musd"]
    assert box.caller.open == 0
    return dict(found)


# -- every way to end -------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("plan", [LOCAL, REMOTE, THREE])
async def test_an_answer(tmp_path: Path, plan: str, stream: bool) -> None:
    box = kit(tmp_path, {"x": Act(usage=(100, 50))}, plan=plan)
    await conduct(box, stream=stream)
    found = closed(box, "completed")
    assert found["cost_musd"] == (0 if plan == LOCAL else 300)
    assert [step["step"] for step in found["steps"]] == list(range(plan.count("\n")))
    assert all(step["label"] == "internal" for step in found["steps"])


async def test_a_refusal_by_policy(tmp_path: Path) -> None:
    box = kit(tmp_path)
    with pytest.raises(PolicyBlocked):
        await conduct(box, model="x", text=IBAN)
    assert closed(box, "denied")["steps"] == []
    (decision,) = box.audit.events("decision")
    assert decision["verdicts"] == {"x": [False, "floor.clearance"]}
    assert decision["plan"] is None and decision["reserved_musd"] == 0


async def test_a_refusal_by_policy_in_a_later_step(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act(IBAN)}, plan="0 q -\n2 0 -\n")
    with pytest.raises(PolicyBlocked):
        await conduct(box)
    assert [step["label"] for step in closed(box, "denied")["steps"]] == [
        "internal", "confidential+payment+pii",
    ]  # fmt: skip


async def test_nobody_within_reach(tmp_path: Path) -> None:
    box = kit(tmp_path)
    for worker in box.pool.workers:
        box.pool.report(worker, WorkerError(Failure.AUTH))
    with pytest.raises(ApiError):
        await conduct(box)
    closed(box, "failed")


async def test_no_plan(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=None)
    with pytest.raises(ApiError):
        await conduct(box)
    closed(box, "failed")


@pytest.mark.parametrize("failure", sorted(set(Failure) - {Failure.OPEN}))
@pytest.mark.parametrize("plan", [REMOTE, THREE])
async def test_every_failure_of_a_worker(tmp_path: Path, plan: str, failure: Failure) -> None:
    box = kit(tmp_path, {"x": Act(fails=WorkerError(failure))}, plan=plan)
    with pytest.raises(ApiError):
        await conduct(box)
    closed(box, "failed")


async def test_a_stream_that_breaks_off(tmp_path: Path) -> None:
    cut = WorkerError(Failure.CUT, began=True)
    box = kit(tmp_path, {"x": Act("one two", breaks_off=cut)}, plan=REMOTE)
    with pytest.raises(WorkerError):
        await conduct(box, stream=True)
    assert closed(box, "failed")["cost_musd"] > 0


async def test_a_day_whose_money_is_spent(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=REMOTE, budget_usd=0.0)
    with pytest.raises(BudgetExhausted):
        await conduct(box, model="x")
    assert box.caller.calls == [] and closed(box, "failed")["cost_musd"] == 0


async def test_a_day_whose_money_is_spent_still_has_what_costs_nothing(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=LOCAL, budget_usd=0.0)
    await conduct(box)
    (asked,) = box.planner.asked
    assert all(candidate.price.free for candidate in asked.candidates)
    assert closed(box, "completed")["cost_musd"] == 0


async def test_the_last_of_a_day_s_money_bounds_a_request(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=REMOTE, budget_usd=20e-6)
    await conduct(box, model="x", max_tokens=10_000)
    (call,) = box.caller.calls
    assert call.body["max_tokens"] < 20


async def test_a_request_that_is_over_its_own_limit(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=REMOTE, limits=replace(ROOMY, max_calls=0))
    with pytest.raises(BudgetExhausted):
        await conduct(box)
    closed(box, "failed")


async def test_a_fault_of_ours(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act(fails=ZeroDivisionError())}, plan=LOCAL)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        await conduct(box)
    closed(box, "failed")


@pytest.mark.parametrize(
    ("leaves", "outcome"),
    [
        (asyncio.CancelledError(), "aborted"),
        (ConnectionResetError(), "aborted"),
        (BrokenPipeError(), "aborted"),
        (ZeroDivisionError(), "failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("plan", [REMOTE, THREE])
async def test_leaving_while_the_answer_is_sent(
    tmp_path: Path, plan: str, stream: bool, leaves: BaseException, outcome: str
) -> None:
    box = kit(tmp_path, plan=plan)
    with pytest.raises(type(leaves)):
        await conduct(box, leaves=leaves, stream=stream)
    assert closed(box, outcome)["cost_musd"] > 0


@pytest.mark.parametrize("where", ["planning", "recording", "at work", "mid-stream"])
async def test_leaving_before_there_is_an_answer(tmp_path: Path, where: str) -> None:
    acts = {"at work": Act(gate=asyncio.Event()), "mid-stream": Act("one", hangs=True)}
    held = frozenset({"egress"}) if where == "recording" else False
    box = kit(tmp_path, {"x": acts.get(where, Act())}, plan=REMOTE, held=held)
    if where == "planning":
        box.planner.gate = asyncio.Event()
    running = asyncio.create_task(conduct(box, stream=True))
    await settled()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    found = closed(box, "aborted")
    assert (found["cost_musd"] > 0) is (where in ("at work", "mid-stream"))


@pytest.mark.parametrize("where", ["planning", "at work", "being read"])
async def test_a_request_that_takes_too_long(tmp_path: Path, where: str) -> None:
    gate = asyncio.Event() if where == "at work" else None
    acts = {"x": Act("one two", gate=gate, hangs=where == "being read")}
    box = kit(tmp_path, acts, plan=REMOTE, limits=replace(ROOMY, total_s=0.5))
    if where == "planning":
        box.planner.gate = asyncio.Event()
    with pytest.raises(UpstreamTimeout):
        await conduct(box, stream=True)
    closed(box, "failed")


async def test_what_is_refused_before_it_is_judged_leaves_no_half_record(tmp_path: Path) -> None:
    box = kit(tmp_path)
    with pytest.raises(ModelNotFound):
        await conduct(box, model="nope")
    with pytest.raises(LabelNotAllowed):
        await conduct(box, declared="public")
    assert box.audit.records == [] and box.caller.calls == []


# -- the audit log ----------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["decision", "egress"])
@pytest.mark.parametrize("plan", [REMOTE, THREE, LOCAL])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_recorded_is_refused_and_not_sent(
    tmp_path: Path, plan: str, stream: bool, broken: str
) -> None:
    box = kit(tmp_path, plan=plan, broken=frozenset({broken}))
    if plan == LOCAL and broken == "egress":
        await conduct(box, stream=stream)
        closed(box, "completed")
        return
    with pytest.raises(AuditUnavailable) as refused:
        await conduct(box, stream=stream)
    assert refused.value.status == 503 and refused.value.headers["Retry-After"] == "5"
    assert not {"x", "y"} & set(box.caller.workers)
    closed(box, "failed")
    gc.collect()


async def test_a_refusal_by_policy_that_cannot_be_recorded_says_so(tmp_path: Path) -> None:
    box = kit(tmp_path, broken=frozenset({"decision"}))
    with pytest.raises(AuditUnavailable):
        await conduct(box, model="x", text=IBAN)
    assert box.audit.counts == {"decision": 1, "outcome": 1}


async def test_a_refusal_by_policy_waits_until_it_is_recorded(tmp_path: Path) -> None:
    box = kit(tmp_path, held=True)
    running = asyncio.create_task(conduct(box, model="x", text=IBAN))
    await settled()
    assert not running.done()
    box.audit.release("decision")
    with pytest.raises(PolicyBlocked):
        await running


async def test_an_outcome_that_cannot_be_recorded_does_not_take_the_answer_back(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path, broken=frozenset({"outcome"}))
    await conduct(box)
    gc.collect()
    closed(box, "completed")


@pytest.mark.parametrize("plan", [LOCAL, REMOTE, THREE])
async def test_the_decision_is_posted_before_any_call(tmp_path: Path, plan: str) -> None:
    box = kit(tmp_path, plan=plan)
    await conduct(box)
    first_call = min(box.diary.index(one) for one in box.diary if one.startswith("call "))
    assert box.diary.index("posted decision") < first_call
    assert box.diary.index("durable decision") < first_call


async def test_records_hold_no_word_of_the_conversation(tmp_path: Path) -> None:
    secret = "the owl flies at noon"
    box = kit(tmp_path, {"a": Act(secret)}, plan=f"0 q {secret}\n1 q,0 {secret}\n")
    await conduct(box, text=f"{secret} {IBAN}", user=secret)
    closed(box, "completed")
    everything = repr([record.fields for record in box.audit.records])
    assert "owl" not in everything and IBAN not in everything
    (decision,) = box.audit.events("decision")
    assert decision["plan"] == [
        {"worker": "a", "access": "q"},
        {"worker": "b", "access": "q,0"},
    ]
    assert [one["id"] for one in decision["detectors"]] == ["iban"]


# -- money ------------------------------------------------------------------------------------


async def test_money_is_put_aside_for_as_long_as_it_may_be_spent(tmp_path: Path) -> None:
    gate = asyncio.Event()
    box = kit(tmp_path, {"x": Act(gate=gate)}, plan=REMOTE, budget_usd=1.0)
    running = asyncio.create_task(conduct(box))
    await settled()
    assert box.ledger.remaining_usd("app") == 0
    with pytest.raises(BudgetExhausted):
        await conduct(box, model="x")
    gate.set()
    await running
    assert box.ledger.remaining_usd("app") == pytest.approx(1.0 - 30e-6)


async def test_work_at_home_needs_no_money(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=LOCAL, budget_usd=0.0)
    await conduct(box, model="conductor-local")
    assert closed(box, "completed")["cost_musd"] == 0


async def test_a_hundred_at_once_of_which_a_third_leave_are_all_recorded_and_paid(
    tmp_path: Path,
) -> None:
    box = kit(
        tmp_path,
        {"x": Act("one two three")},
        plan=REMOTE,
        limits=RequestLimits(5, 9, 9999, 0.01, 60),
    )
    tasks = [
        asyncio.create_task(conduct(box, Conducted(f"req_{place}"), stream=True))
        for place in range(100)
    ]
    for turn in range(40):
        await asyncio.sleep(0)
        tasks[turn * 2].cancel()
    await asyncio.wait(tasks)
    decided = [one["request_id"] for one in box.audit.events("decision")]
    ended = [one["request_id"] for one in box.audit.events("outcome")]
    assert sorted(decided) == sorted(ended) and len(set(ended)) == len(ended)
    account = box.ledger._accounts["app"]
    costs = sum(one["cost_musd"] for one in box.audit.events("outcome"))
    assert (account.reserved_musd, account.spent_musd) == (0, costs)
    assert (box.caller.open, box.caller.streams_open) == (0, 0)
