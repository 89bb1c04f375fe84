"""Rounds from the inside: what is on disk before what, what ends with what, what is paid."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor.core import Failure, Usage
from conductor.errors import (
    AuditUnavailable,
    NoLocalBackend,
    PlanError,
    UpstreamFailed,
    UpstreamTimeout,
    WorkerError,
)
from conductor.run import rounds
from conductor.run.conduct import Conducted
from conductor.run.sidebyside import all_of
from support.configs import local_worker, remote_worker
from support.fakes import ROOMY, Act, Kit, kit, parsed, settled

TWO, ABROAD, KEEP, HOME = "0 q -\n1 q -\n", "2 q -\n", "", "0 q -\n"
LOOK, FINAL = True, False


def scripted(box: Kit, *script: tuple[str, bool]) -> Kit:
    box.planner.script = list(script)
    return box


async def conduct(box: Kit, state: Conducted | None = None, **fields: Any) -> str:
    """The answer's text, streamed or not."""
    request, raw = parsed(**fields)
    given = state or Conducted("req_1")
    async with box.conduct.answer(given, request, raw, box.key, None) as answer:
        if answer.body is not None:
            return str(answer.body["choices"][0]["message"]["content"])
        assert answer.chunks is not None
        deltas = [c["delta"] async for chunk in answer.chunks for c in chunk["choices"]]
        return " ".join(delta["content"] for delta in deltas if delta.get("content"))


def before(box: Kit, first: str, second: str) -> bool:
    return box.diary.index(first) < box.diary.index(second)


# -- what is on disk --------------------------------------------------------------------------


async def test_a_further_round_calls_abroad_only_once_its_own_record_is_on_disk(
    tmp_path: Path,
) -> None:
    box = scripted(kit(tmp_path, held=frozenset({"round"})), (TWO, LOOK), (ABROAD, FINAL))
    running = asyncio.create_task(conduct(box))
    await settled()
    assert box.caller.workers == ["a", "b"] and not running.done()
    box.audit.release("round")
    assert await running == "fine"
    assert before(box, "durable round", "call x")
    (round_,) = box.audit.events("round")
    assert round_["verdicts"]["x"] == [True, "ordinary-work-may-go-out"]
    assert box.audit.events("outcome")[0]["rounds"] == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("last", [KEEP, "vote 0,1 -\n", HOME])
async def test_the_first_byte_waits_for_the_record_of_its_round(
    tmp_path: Path, last: str, stream: bool
) -> None:
    box = scripted(kit(tmp_path, held=frozenset({"round"})), (TWO, LOOK), (last, FINAL))
    running = asyncio.create_task(conduct(box, stream=stream))
    await settled()
    assert box.audit.counts["round"] == 1 and not running.done()
    box.audit.release("round")
    assert await running == "fine"


async def test_a_further_round_waits_for_the_record_of_the_one_before(tmp_path: Path) -> None:
    box = scripted(kit(tmp_path, held=frozenset({"decision"})), (TWO, LOOK), (ABROAD, FINAL))
    running = asyncio.create_task(conduct(box))
    await settled()
    assert box.caller.workers == ["a", "b"] and len(box.planner.asked) == 1
    box.audit.release("decision")
    assert await running == "fine"
    assert before(box, "durable decision", "posted round")


@pytest.mark.parametrize("last", [KEEP, ABROAD, HOME])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_recorded_is_refused_though_an_answer_stands(
    tmp_path: Path, last: str, stream: bool
) -> None:
    box = scripted(kit(tmp_path, broken=frozenset({"round"})), (TWO, LOOK), (last, FINAL))
    with pytest.raises(AuditUnavailable):
        await conduct(box, stream=stream)
    assert "x" not in box.caller.workers
    assert box.audit.counts["outcome"] == 1
    gc.collect()


async def test_a_permit_of_a_later_round_carries_the_label_of_what_was_heard(
    tmp_path: Path,
) -> None:
    cleared = {"frontier": {"clearance": {"level": "internal", "compartments": ["pii"]}}}
    box = kit(tmp_path, {"a": Act("joe@example.org")}, policy={"destinations": cleared})
    scripted(box, ("0 q -\n2 q -\n", LOOK), ("2 - Say something.\n", FINAL))
    await conduct(box)
    assert [label for _, _, label in box.desk.minted] == [box.label(), box.label("internal+pii")]
    assert [sent["label"] for sent in box.audit.events("egress")] == ["internal", "internal+pii"]
    (round_,) = box.audit.events("round")
    assert round_["label"] == "internal+pii"


async def test_records_of_rounds_hold_no_word_of_the_conversation(tmp_path: Path) -> None:
    secret = "the owl flies at noon"
    box = kit(tmp_path, {"a": Act(secret)})
    scripted(box, (f"0 q {secret}\n", LOOK), (f"1 q,0 {secret}\n", FINAL))
    await conduct(box, text=secret)
    everything = repr([record.fields for record in box.audit.records])
    assert "owl" not in everything
    assert box.audit.events("round")[0]["plan"] == [{"worker": "b", "access": "q,0"}]


# -- usage and money --------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_is_told_the_usage_of_all_rounds(tmp_path: Path, stream: bool) -> None:
    acts = {"a": Act(usage=(10, 1)), "x": Act(usage=(100, 20)), "y": Act(usage=(1000, 300))}
    box = kit(tmp_path, acts)
    scripted(box, ("0 q -\n2 q -\n", LOOK), ("3 q,0,1 -\n", FINAL))
    state = Conducted("req_1")
    await conduct(box, state, stream=stream)
    assert state.run is not None and state.run.usage == Usage(1110, 321)
    (found,) = box.audit.events("outcome")
    assert found["cost_musd"] == 100 + 4 * 20 + 1000 + 4 * 300
    account = box.ledger._accounts["app"]
    assert (account.reserved_musd, account.spent_musd) == (0, found["cost_musd"])
    assert [step["round"] for step in found["steps"]] == [0, 0, 1]


async def test_a_later_round_has_no_worker_that_the_first_had_not(tmp_path: Path) -> None:
    """Nor one that costs money, when the day's is spent and none was put aside."""
    box = scripted(kit(tmp_path, budget_usd=0.0), (TWO, LOOK), (KEEP, FINAL))
    await conduct(box)
    assert [len(asked.candidates) for asked in box.planner.asked] == [2, 2]


async def test_who_went_down_in_a_look_is_no_candidate_of_the_next(tmp_path: Path) -> None:
    box = kit(tmp_path, {"b": Act(fails=WorkerError(Failure.REFUSED))})
    scripted(box, (TWO, LOOK), (KEEP, FINAL))
    assert await conduct(box) == "fine"
    assert [len(asked.candidates) for asked in box.planner.asked] == [4, 3]
    assert [heard.worker for heard in box.planner.asked[1].heard] == [0, None]


async def test_a_first_look_that_fails_everywhere_is_its_error(tmp_path: Path) -> None:
    down = Act(fails=WorkerError(Failure.REFUSED))
    box = scripted(kit(tmp_path, {"a": down, "b": down}), (TWO, LOOK), (KEEP, FINAL))
    with pytest.raises(NoLocalBackend) as refused:
        await conduct(box)
    assert "Retry-After" in refused.value.headers and len(box.planner.asked) == 1


async def test_empty_answers_stand_for_nothing_and_others_are_asked(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act(" \n"), "b": Act("")})
    scripted(box, (TWO, LOOK), (ABROAD, FINAL))
    assert await conduct(box) == "fine"
    assert [heard.answer for heard in box.planner.asked[1].heard] == ["", ""]
    assert box.caller.workers[-1] == "x"


async def test_a_vote_is_nobodys_even_where_a_worker_has_that_name(tmp_path: Path) -> None:
    pool = [local_worker("a", port=9001), local_worker("vote", port=9002)]
    box = scripted(kit(tmp_path, workers=pool), (f"{TWO}vote 0,1 -\n", LOOK), (KEEP, FINAL))
    await conduct(box)
    assert [heard.worker for heard in box.planner.asked[1].heard] == [0, 1, None]


async def test_a_step_in_a_look_that_is_shown_nothing_but_a_failure_is_not_run(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path, {"a": Act(fails=WorkerError(Failure.BAD_REQUEST))})
    scripted(box, ("0 q -\n1 0 -\n2 q,0 -\n", LOOK), (KEEP, FINAL))
    assert await conduct(box) == "fine"
    assert sorted(box.caller.workers) == ["a", "x"]
    assert [heard.answer for heard in box.planner.asked[1].heard] == ["", "", "fine"]


@pytest.mark.parametrize(
    ("script", "bounded"),
    [
        ([("0 q -\n1 q,0 -\n", LOOK), (KEEP, FINAL)], [True, True]),
        ([("0 q -\n1 q -\nvote 0,1 -\n", FINAL)], [True, True]),
        ([("0 q -\n1 q,0 -\n", FINAL)], [False, True]),
    ],
)
async def test_what_may_become_the_clients_answer_is_bounded_as_it_asked(
    tmp_path: Path, script: list[tuple[str, bool]], bounded: list[bool]
) -> None:
    box = scripted(kit(tmp_path), *script)
    await conduct(box, max_tokens=5, stop=["\n"])
    assert [made.body["max_tokens"] == 5 for made in box.caller.calls] == bounded
    assert ["stop" in made.body for made in box.caller.calls] == bounded


# -- time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["planning", "second look", "last step"])
async def test_when_time_is_up_what_stands_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, stream: bool
) -> None:
    now = asyncio.get_running_loop().time
    monkeypatch.setattr(rounds, "_last_moment", lambda run: now() + 0.01)
    box = kit(tmp_path, {"a": Act("one two"), "x": Act(gate=asyncio.Event())})
    scripted(box, (HOME, LOOK), (ABROAD, where == "second look"), (KEEP, FINAL))
    state = Conducted("req_1")
    if where == "planning":
        ask = box.planner.plan

        async def slow(request: Any) -> Any:
            if request.heard:
                await asyncio.Event().wait()
            return await ask(request)

        monkeypatch.setattr(box.planner, "plan", slow)
    assert (await conduct(box, state, stream=stream)).split() == ["one", "two"]
    (found,) = box.audit.events("outcome")
    assert (found["outcome"], found["stood_in_for"]) == ("completed", "upstream_timeout")
    assert box.caller.open == 0 and found["answer_step"] == 0


async def test_without_an_answer_that_stands_time_ends_as_ever(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act(gate=asyncio.Event())}, limits=replace(ROOMY, total_s=0.05))
    scripted(box, (HOME, LOOK), (KEEP, FINAL))
    with pytest.raises(UpstreamTimeout):
        await conduct(box)
    assert box.audit.events("outcome")[0]["stood_in_for"] is None


@pytest.mark.parametrize(("total_s", "aside_s"), [(600.0, 1.0), (10.0, 0.5), (1.0, 0.05)])
async def test_the_last_word_has_its_time(tmp_path: Path, total_s: float, aside_s: float) -> None:
    box = kit(tmp_path, limits=replace(ROOMY, total_s=total_s))
    run = box.run(HOME)
    end = asyncio.get_running_loop().time() + run.job.budget.seconds_left()
    assert end - rounds._last_moment(run) == pytest.approx(aside_s, abs=1e-2 * aside_s)


async def test_a_timer_of_the_request_is_told_from_a_client_that_left_even_after_a_failure(
    tmp_path: Path,
) -> None:
    """A step failed beside another, what stood is given, and its reader is too slow."""
    bad = Act(fails=WorkerError(Failure.BAD_REQUEST))
    box = kit(tmp_path, {"a": Act("one two"), "b": bad}, limits=replace(ROOMY, total_s=0.3))
    scripted(box, (HOME, LOOK), ("1 q -\n2 q -\n3 1,2 -\n", FINAL))
    request, raw = parsed(stream=True)
    with pytest.raises(UpstreamTimeout):
        async with box.conduct.answer(Conducted("req_1"), request, raw, box.key, None) as answer:
            assert answer.worker == "a"
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    assert box.audit.events("outcome")[0]["outcome"] == "failed"


# -- leaving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [*range(0, 60, 3)])
async def test_whoever_leaves_at_any_moment_ends_every_round(tmp_path: Path, turns: int) -> None:
    box = kit(tmp_path, {"y": Act("one two", hangs=True)})
    scripted(box, (TWO, LOOK), ("2 q,0 -\nvote 0,1,2 -\n", LOOK), ("3 q,3 -\n", FINAL))
    everything = asyncio.all_tasks()
    running = asyncio.create_task(conduct(box, stream=True))
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() and asyncio.all_tasks() == everything
    assert (box.caller.open, box.caller.streams_open) == (0, 0)
    assert all(one["in_flight"] == 0 for one in box.pool.status())
    ended = [one["outcome"] for one in box.audit.events("outcome")]
    assert ended == ["aborted"] * len(ended) and len(ended) == len(box.audit.events("decision"))
    assert box.ledger._accounts["app"].reserved_musd == 0


async def test_nobody_is_answered_who_left_though_an_error_came_out_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = scripted(kit(tmp_path), (HOME, LOOK))
    ask = box.planner.plan

    async def clumsy(request: Any) -> Any:
        if not request.heard:
            return await ask(request)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise PlanError("lost") from None

    monkeypatch.setattr(box.planner, "plan", clumsy)
    running = asyncio.create_task(conduct(box))
    await settled()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() or isinstance(running.exception(), UpstreamFailed)
    (found,) = box.audit.events("outcome")
    assert found["outcome"] != "completed" and found["answer_step"] is None


async def test_a_hundred_at_once_of_which_a_third_leave_are_all_recorded_and_paid(
    tmp_path: Path,
) -> None:
    room = {"limits": {"max_in_flight": 200}}
    pool = [
        local_worker("a", port=9001, **room),
        local_worker("b", port=9002, **room),
        remote_worker("x", **room),
    ]
    box = kit(tmp_path, {"x": Act("one two three")}, workers=pool)
    ask = box.planner.plan

    async def plan(request: Any) -> Any:
        box.planner.script = [(ABROAD, FINAL) if request.heard else (TWO, LOOK)]
        return await ask(request)

    box.planner.plan = plan  # type: ignore[method-assign]
    tasks = [
        asyncio.create_task(conduct(box, Conducted(f"req_{place}"), stream=True))
        for place in range(100)
    ]
    for turn in range(33):
        await asyncio.sleep(0)
        tasks[turn * 3].cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        assert task.cancelled() or task.result() == "one two three"
    decided = [one["request_id"] for one in box.audit.events("decision")]
    ended = [one["request_id"] for one in box.audit.events("outcome")]
    assert sorted(decided) == sorted(ended) and len(set(ended)) == len(ended)
    account = box.ledger._accounts["app"]
    costs = sum(one["cost_musd"] for one in box.audit.events("outcome"))
    assert (account.reserved_musd, account.spent_musd) == (0, costs)
    assert (box.caller.open, box.caller.streams_open) == (0, 0)


# -- side by side -----------------------------------------------------------------------------


async def test_the_first_that_fails_ends_the_others_and_leaves_no_mark() -> None:
    ended: list[str] = []

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await all_of([asyncio.create_task(one) for one in (waits("a"), fails(), waits("b"))])
    task = asyncio.current_task()
    assert sorted(ended) == ["a", "b"]
    assert task is not None and task.cancelling() == 0
    async with asyncio.timeout(None):
        await all_of([])


async def test_whoever_is_cancelled_twice_while_waiting_leaves_nothing_behind() -> None:
    ended = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            ended.set()

    waiting = asyncio.create_task(all_of([asyncio.create_task(stubborn())]))
    await settled()
    for _ in range(2):
        waiting.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([waiting])
    assert waiting.cancelled() and ended.is_set()


async def test_an_error_that_nobody_waited_for_is_not_reported_as_lost(
    recwarn: pytest.WarningsRecorder,
) -> None:
    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))

    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await all_of([asyncio.create_task(fails()) for _ in range(3)])
    gc.collect()
    await asyncio.sleep(0)
    assert lost == []
