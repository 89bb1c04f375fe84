"""Plans as graphs: what runs, when, who is shown what, under which label, and at whose cost."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor.core import Body, Failure, Usage
from conductor.errors import (
    ApiError,
    AuditError,
    BudgetExhausted,
    InternalError,
    NoLocalBackend,
    PolicyBlocked,
    WorkerError,
)
from conductor.plan.language import parse, resolve
from conductor.run.job import Run
from conductor.settings import RequestLimits
from support.fakes import Act, Kit, chat, kit, settled

IBAN = "IT60X0542811101000000123456"
QUESTION = "What is it?"


async def answer(box: Kit, run: Run) -> Body:
    """The whole answer; of a stream, its text and its usage."""
    async with box.executor.answer(run) as begun:
        if begun.body is not None:
            return begun.body
        assert begun.chunks is not None
        chunks = [chunk async for chunk in begun.chunks]
    words = [c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]]
    return {"text": "".join(words), "usage": chunks[-1]["usage"], "chunks": chunks}


async def text(box: Kit, run: Run) -> str:
    found: str = (await answer(box, run))["choices"][0]["message"]["content"]
    return found


async def refused(box: Kit, run: Run) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await answer(box, run)
    return caught.value


def seen_by(box: Kit, worker: str) -> str:
    return "\n".join(made.seen for made in box.caller.calls if made.worker == worker)


# -- what runs --------------------------------------------------------------------------------


async def test_a_one_step_plan_passes_the_request_through(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act("Rome")})
    run = box.run("0 q -\n", temperature=0.5)
    assert await text(box, run) == "Rome"
    (made,) = box.caller.calls
    assert made.body["messages"] == [{"role": "user", "content": QUESTION}]
    assert made.body["temperature"] == 0.5 and made.body["model"] == "a"
    assert run.answered_by == "a" and sorted(run.records) == [0]


async def test_only_what_the_last_step_depends_on_is_run(tmp_path: Path) -> None:
    box = kit(tmp_path)
    run = box.run("0 q -\n1 q -\n2 0 -\n3 q -\n1 2 -\n")
    await answer(box, run)
    assert box.caller.workers == ["a", "x", "b"]
    assert sorted(run.records) == [0, 2, 4]


async def test_steps_that_need_nothing_of_each_other_run_side_by_side(tmp_path: Path) -> None:
    gates = {name: asyncio.Event() for name in "ab"}
    box = kit(tmp_path, {name: Act(gate=gate) for name, gate in gates.items()})
    running = asyncio.create_task(answer(box, box.run("0 q -\n1 q -\n2 0,1 -\n")))
    await settled()
    assert box.diary == ["call a", "call b"] and box.caller.open == 2
    gates["b"].set()
    await settled()
    assert "call x" not in box.diary
    gates["a"].set()
    await running
    assert box.caller.workers == ["a", "b", "x"]


async def test_a_step_starts_as_soon_as_its_own_inputs_are_there(tmp_path: Path) -> None:
    slow = asyncio.Event()
    box = kit(tmp_path, {"a": Act(gate=slow)})
    running = asyncio.create_task(answer(box, box.run("0 q -\n1 q -\n2 1 -\n3 0,2 -\n")))
    await settled()
    assert box.caller.workers == ["a", "b", "x"]
    slow.set()
    await running
    assert box.caller.workers[-1] == "y"


async def test_five_steps_in_a_row_run_in_a_row(tmp_path: Path) -> None:
    box = kit(tmp_path)
    run = box.run("0 q -\n1 0 -\n2 1 -\n3 2 -\n0 * -\n")
    await answer(box, run)
    assert box.caller.workers == ["a", "b", "x", "y", "a"] and box.caller.peak == 1


plans = st.integers(1, 5).flatmap(
    lambda count: st.tuples(
        *[
            st.tuples(
                st.integers(0, 3),
                st.just("*")
                | st.tuples(st.booleans(), st.sets(st.integers(0, 4))).map(
                    lambda pair: (pair[0], sorted(pair[1]))
                ),
            )
            for _ in range(count)
        ]
    )
)


def spelled(steps: Any) -> str:
    lines = []
    for place, (worker, access) in enumerate(steps):
        if access != "*":
            names = ["q"] * access[0] + [str(one) for one in access[1] if one < place]
            access = ",".join(names) or "-"
        lines.append(f"{worker} {access} Do part {place}.\n")
    return "".join(lines)


@given(plans)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_plan_shows_each_step_exactly_what_its_access_list_says(
    tmp_path: Path, steps: Any
) -> None:
    asyncio.run(_check_access(tmp_path, spelled(steps)))


async def _check_access(directory: Path, plan: str) -> None:
    box = kit(directory)
    box.caller.answer = lambda made: f"ANSWER-{made.seen.rpartition('Do part ')[2][0]}"
    run = box.run(plan, text="THE-QUESTION")
    await answer(box, run)
    ran = {int(made.seen.rpartition("Do part ")[2][0]): made for made in box.caller.calls}
    order = [int(made.seen.rpartition("Do part ")[2][0]) for made in box.caller.calls]
    assert sorted(order) == sorted(run.records) and order[-1] == len(parse(plan).steps) - 1
    for place, made in ran.items():
        view = resolve(parse(plan).steps[place].access, place)
        assert ("THE-QUESTION" in made.seen) is view.question
        for other in range(5):
            assert (f"ANSWER-{other}" in made.seen) is (other in view.steps)
            assert (f"Result of step {other + 1} " in made.seen) is (other in view.steps)
        assert all(order.index(one) < order.index(place) for one in view.steps)


async def test_nothing_and_everything_are_access_lists_too(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act("FIRST"), "b": Act("SECOND")})
    await answer(box, box.run("0 - Guess.\n1 - -\n2 * Judge.\n"))
    assert seen_by(box, "a") == "Guess."
    assert QUESTION not in seen_by(box, "b") and "FIRST" not in seen_by(box, "b")
    assert all(part in seen_by(box, "x") for part in (QUESTION, "FIRST", "SECOND", "Judge."))


# -- labels -----------------------------------------------------------------------------------


async def test_an_answer_with_a_finding_reaches_no_worker_that_may_not_see_it(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path, {"a": Act(f"Pay to {IBAN}.")})
    run = box.run("0 q -\n2 0 -\n", alternates=(3,))
    error = await refused(box, run)
    assert isinstance(error, PolicyBlocked) and IBAN not in str(error.envelope())
    assert box.caller.workers == ["a"] and box.desk.minted == []
    assert run.records[1].label == box.label("confidential+payment+pii")


async def test_it_goes_to_a_stand_in_that_may(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act(f"Pay to {IBAN}.")})
    run = box.run("0 q -\n2 0 -\n", alternates=(3, 1, 0))
    await answer(box, run)
    assert box.caller.workers == ["a", "b"] and run.records[1].worker == "b"


async def test_a_step_that_is_not_shown_the_finding_is_not_raised_by_it(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act(f"Pay to {IBAN}.")})
    run = box.run("0 q -\n2 q -\n1 0,1 -\n")
    await answer(box, run)
    labels = {place: record.label for place, record in run.records.items()}
    assert labels[1] == box.label() and labels[2] == box.label("confidential+payment+pii")
    assert IBAN not in seen_by(box, "x")


async def test_labels_of_all_inputs_are_joined_and_travel_on(tmp_path: Path) -> None:
    acts = {"a": [Act(IBAN), Act("fine"), Act("done")], "b": Act("to: joe@example.org")}
    box = kit(tmp_path, acts)
    run = box.run("0 q -\n1 q -\n0 0,1 -\n0 2 -\n", label="internal+unscanned")
    await answer(box, run)
    found = [box.site.policy.lattice.show(run.records[place].label) for place in range(4)]
    assert found[:2] == ["internal+unscanned"] * 2
    assert found[2:] == ["confidential+payment+pii+unscanned"] * 2


async def test_a_step_shown_nothing_still_carries_the_requests_label(tmp_path: Path) -> None:
    box = kit(tmp_path)
    run = box.run("2 - Guess.\n", label="confidential")
    assert isinstance(await refused(box, run), PolicyBlocked)
    assert box.caller.calls == []


async def test_an_elected_answer_keeps_its_label(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act(IBAN), "b": Act(IBAN)})
    run = box.run("0 q -\n1 q -\nvote 0,1 -\n2 2 -\n")
    assert isinstance(await refused(box, run), PolicyBlocked)
    assert box.caller.workers == ["a", "b"]


# -- votes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_vote_at_the_end_is_the_answer(tmp_path: Path, stream: bool) -> None:
    acts = {"a": Act("42", usage=(10, 1)), "b": Act("7", usage=(20, 2)), "x": Act("42.0")}
    box = kit(tmp_path, acts)
    run = box.run("0 q -\n1 q -\n2 q -\nvote 0,1,2 -\n", stream=stream)
    found = await answer(box, run)
    said = found["text"] if stream else found["choices"][0]["message"]["content"]
    assert said == "42" and run.answered_by == "vote" and run.records[3].worker == "vote"
    assert found["usage"] == {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
    if stream:
        ids = {(c["id"], c["object"], c["created"]) for c in found["chunks"]}
        assert ids == {("chatcmpl-d1", "chat.completion.chunk", 7)}
        assert found["chunks"][-2]["choices"][0]["finish_reason"] == "stop"


async def test_a_vote_in_the_middle_shows_the_winner_alone(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act("42"), "b": Act("7")})
    await answer(box, box.run("0 q -\n1 q -\n0 q -\nvote 0,1,2 -\n3 3 -\n"))
    assert "Result of step 4:\n42" in seen_by(box, "y") and "7" not in seen_by(box, "y")


@pytest.mark.parametrize("plan", ["redact q -\n1 0 -\n", "0 q -\nredact 0 -\n1 1 -\n"])
async def test_no_model_stands_in_for_a_redaction(tmp_path: Path, plan: str) -> None:
    box = kit(tmp_path)
    assert isinstance(await refused(box, box.run(plan, alternates=(0, 1, 2))), InternalError)
    assert set(box.caller.workers) <= {"a"}


# -- accounting -------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_is_told_the_usage_of_all_steps(tmp_path: Path, stream: bool) -> None:
    acts = {
        "a": [Act(fails=WorkerError(Failure.CUT))],
        "b": Act(usage=(100, 10)),
        "x": Act(usage=(1000, 100)),
        "y": Act(usage=(10_000, 1000)),
    }
    box = kit(tmp_path, acts)
    run = box.run("0 q -\n2 q -\n3 0,1 -\n", alternates=(1,), stream=stream)
    found = await answer(box, run)
    usage = {key: found["usage"][key] for key in ("prompt_tokens", "completion_tokens")}
    assert usage == {"prompt_tokens": 11_100, "completion_tokens": 1110}
    assert run.usage == Usage(11_100, 1110)
    assert [record.usage.prompt_tokens for _, record in sorted(run.records.items())] == [
        100, 1000, 10_000,
    ]  # fmt: skip
    assert run.cost_usd == pytest.approx((1000 + 4 * 100 + 10_000 + 4 * 1000) / 1e6)


@pytest.mark.parametrize(("letter", "fits"), [("x", True), ("漢", False)])
async def test_earlier_answers_count_as_the_bytes_that_they_are(
    tmp_path: Path, letter: str, fits: bool
) -> None:
    box = kit(tmp_path, {"a": Act(letter * 1000)}, limits=RequestLimits(5, 9, 10**6, 1000e-6, 60.0))
    run = box.run("0 q -\n2 0 -\n")
    if fits:
        await answer(box, run)
    else:
        assert isinstance(await refused(box, run), BudgetExhausted)
    assert ("x" in box.caller.workers) is fits


async def test_bounds_on_the_answer_do_not_cut_short_what_leads_to_it(tmp_path: Path) -> None:
    box = kit(tmp_path)
    await answer(box, box.run("0 q -\n1 0 -\n", max_tokens=5, stop=["\n"]))
    draft, last = (made.body for made in box.caller.calls)
    assert draft["max_tokens"] == 4096 and "stop" not in draft
    assert last["max_tokens"] == 5 and last["stop"] == ["\n"]


async def test_the_limit_on_calls_holds_over_all_steps(tmp_path: Path) -> None:
    box = kit(tmp_path, limits=RequestLimits(5, 2, 10**6, 1.0, 60.0))
    error = await refused(box, box.run("0 q -\n1 0 -\n0 1 -\n"))
    assert isinstance(error, BudgetExhausted) and box.caller.workers == ["a", "b"]


async def test_many_choices_are_budgeted_as_many(tmp_path: Path) -> None:
    box = kit(tmp_path, limits=RequestLimits(5, 2, 1000, 1.0, 60.0))
    await answer(box, box.run("0 q -\n", n=4))
    assert box.caller.calls[0].body["max_tokens"] <= 250


# -- failing and leaving ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Failure.REFUSED, "no_local_backend"),
        (Failure.RATE_LIMITED, "overloaded"),
        (Failure.LOADING, "model_loading"),
        (Failure.FIRST_BYTE_TIMEOUT, "upstream_timeout"),
        (Failure.SERVER_ERROR, "upstream_error"),
        (Failure.CONTEXT_LENGTH, "context_length_exceeded"),
    ],
)
@pytest.mark.parametrize("plan", ["0 q -\n1 0 -\n", "1 q -\n0 q -\n1 0,1 -\n", "1 q -\n0 0 -\n"])
async def test_a_step_that_fails_everywhere_fails_the_plan_with_its_own_error(
    tmp_path: Path, failure: Failure, code: str, plan: str
) -> None:
    box = kit(tmp_path, {"a": Act(fails=WorkerError(failure))})
    error = await refused(box, box.run(plan))
    assert error.code == code
    assert box.caller.open == 0


async def test_a_failing_step_stops_the_ones_beside_it(tmp_path: Path) -> None:
    acts = {"a": Act(gate=asyncio.Event()), "b": Act(fails=WorkerError(Failure.REFUSED))}
    box = kit(tmp_path, acts)
    run = box.run("0 q -\n1 q -\n2 0,1 -\n")
    assert isinstance(await refused(box, run), NoLocalBackend)
    assert box.caller.open == 0 and "call x" not in box.diary
    assert [str(tried.outcome) for tried in run.records[0].tried] == ["aborted"]


async def test_two_steps_that_fail_at_once_give_one_error(tmp_path: Path) -> None:
    gate = asyncio.Event()
    act = Act(gate=gate, fails=WorkerError(Failure.REFUSED))
    box = kit(tmp_path, {"a": act, "b": act})
    running = asyncio.create_task(refused(box, box.run("0 q -\n1 q -\n2 0,1 -\n")))
    await settled()
    gate.set()
    assert isinstance(await running, NoLocalBackend)


@pytest.mark.parametrize("plan", ["2 q -\n", "2 q -\n0 0 -\n", "2 q -\n3 q -\n0 0,1 -\n"])
async def test_what_cannot_be_recorded_in_any_step_is_an_audit_error(
    tmp_path: Path, plan: str
) -> None:
    box = kit(tmp_path, broken=frozenset({"egress"}))
    with pytest.raises(AuditError):
        await answer(box, box.run(plan))
    assert box.caller.calls == []
    gc.collect()


@pytest.mark.parametrize("plan", ["0 q -\n", "0 q -\n1 q -\nvote 0,1 -\n"])
async def test_no_answer_is_released_before_the_decision_is_on_disk(
    tmp_path: Path, plan: str
) -> None:
    box = kit(tmp_path, held=True)
    running = asyncio.create_task(text(box, box.run(plan, durable=box.audit.post("decision"))))
    await settled()
    assert box.caller.workers and not running.done()
    box.audit.release("decision")
    assert await running == "fine"


async def test_an_answer_whose_decision_cannot_be_recorded_is_withheld(tmp_path: Path) -> None:
    box = kit(tmp_path, broken=frozenset({"decision"}))
    for plan in ("0 q -\n", "0 q -\n1 q -\nvote 0,1 -\n", "0 q -\n1 0 -\n"):
        run = box.run(plan, durable=box.audit.post("decision"))
        with pytest.raises(AuditError):
            await answer(box, run)
        assert run.job.budget._active == 0


@pytest.mark.parametrize("turns", range(12))
async def test_whoever_leaves_at_any_moment_cancels_every_step(tmp_path: Path, turns: int) -> None:
    acts = {name: Act("one two", gate=asyncio.Event()) for name in "ab"}
    box = kit(tmp_path, acts)
    run = box.run("0 q -\n1 q -\n2 q -\n3 0,1,2 -\n")
    before = asyncio.all_tasks()
    running = asyncio.create_task(answer(box, run))
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() and asyncio.all_tasks() == before
    assert (box.caller.open, run.job.budget._active) == (0, 0)
    assert all(one["in_flight"] == 0 for one in box.pool.status())


@pytest.mark.parametrize("plan", ["0 q -\n", "0 q -\n2 0 -\n", "0 q -\n1 q -\nvote 0,1 -\n"])
@pytest.mark.parametrize("read", range(4))
async def test_a_stream_left_unread_is_closed_to_the_last_generator(
    tmp_path: Path, plan: str, read: int
) -> None:
    left: list[str] = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=lambda agen: left.append(agen.__qualname__))
    try:
        box = kit(tmp_path, {name: Act("one two three four") for name in "abx"})
        run = box.run(plan, stream=True)
        async with box.executor.answer(run) as begun:
            for _ in range(read):
                await anext(begun.chunks)  # type: ignore[arg-type]
        assert (box.caller.open, box.caller.streams_open) == (0, 0)
        assert run.job.budget._active == 0
        del begun
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert left == []


async def test_a_break_after_content_reaches_the_reader_as_it_is(tmp_path: Path) -> None:
    cut = WorkerError(Failure.CUT, began=True)
    box = kit(tmp_path, {"b": Act("one two", breaks_off=cut)})
    with pytest.raises(WorkerError) as caught:
        await answer(box, box.run("0 q -\n1 0 -\n", alternates=(0, 1), stream=True))
    assert caught.value is cut and box.caller.workers == ["a", "b"]


async def test_earlier_steps_are_never_streamed_and_never_seen(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act("THE DRAFT"), "b": Act("the end")})
    found = await answer(box, box.run("0 q -\n1 0 -\n", stream=True))
    assert found["text"] == "theend" and "DRAFT" not in str(found)
    assert [made.stream for made in box.caller.calls] == [False, True]


def test_the_fixture_question_is_the_one_that_is_asked() -> None:
    assert chat().question == QUESTION
