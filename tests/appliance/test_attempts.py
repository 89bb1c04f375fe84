"""One step's attempts: what must hold before each, what follows each, and what never happens."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor.core import Failure, Usage
from conductor.errors import (
    ApiError,
    AuditError,
    BadRequest,
    BudgetExhausted,
    NoLocalBackend,
    Overloaded,
    PolicyBlocked,
    UpstreamFailed,
    UpstreamTimeout,
    WorkerError,
)
from conductor.flow.standing import Standing
from conductor.policy import decide as deciding
from conductor.run import audience
from conductor.run.attempts import Ask
from conductor.run.budget import Budget, estimate_tokens
from conductor.run.workflow import Workflow
from conductor.settings import RequestLimits
from support.configs import local_worker, remote_worker
from support.fakes import ROOMY, Act, Kit, kit, settled

PROMPT_BYTES = 400


def fails(failure: Failure, **more: Any) -> Act:
    return Act(fails=WorkerError(failure, **more))


def ask(box: Kit, order: Sequence[str] = ("a", "b", "x", "y"), **changes: Any) -> Ask:
    loop = asyncio.get_running_loop()
    durable = changes.pop("durable", None)
    if durable is None:
        durable = loop.create_future()
        durable.set_result(None)
    label = box.label(changes.pop("label", "internal"))
    given = Ask(
        request_id="req_1",
        decision_id="d1",
        step=0,
        policy=box.site.policy,
        standing=Standing.of(label),
        workflow=Workflow.under(box.site.policy, box.site.policy.default_label),
        order=tuple(map(box.worker, order)),
        body=lambda worker, tokens: (
            b'{"messages":[{"content":"hi"}],"max_tokens":%d,"model":"%b"}'
            % (tokens, worker.model.encode())
        ),
        prompt_bytes=PROMPT_BYTES,
        wanted_tokens=None,
        choices=1,
        stream=False,
        answer_id="chatcmpl-d1",
        created=7,
        budget=Budget(box.limits, loop.time),
        durable=durable,
        earlier=Usage(),
    )
    return replace(given, **changes)


async def answered(box: Kit, given: Ask) -> str:
    """Who answered, after reading the answer to its end."""
    async with box.attempts.begin(given) as begun:
        if begun.chunks is not None:
            async for _ in begun.chunks:
                pass
        return begun.worker.id


async def refused(box: Kit, given: Ask) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await answered(box, given)
    return caught.value


def outcomes(given: Ask) -> list[tuple[str, str]]:
    return [(tried.worker, str(tried.outcome)) for tried in given.tried]


def nothing_is_held(box: Kit, given: Ask) -> None:
    """Every place, reservation and context has been given back."""
    assert (box.caller.open, box.caller.streams_open) == (0, 0)
    assert all(one["in_flight"] == one["queued"] == 0 for one in box.pool.status())
    assert (given.budget._held_tokens, given.budget._active) == (0, 0)
    assert given.budget._held_usd == pytest.approx(0, abs=1e-12)


class Rules:
    """Stands for `decide`, so that a test can change its mind; counts how often it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.denied: set[str] = set()
        self.asked: list[str] = []
        monkeypatch.setattr(audience, "decide", self)

    def __call__(self, policy: Any, label: Any, worker: Any, **more: Any) -> Any:
        self.asked.append(worker.id)
        verdict = deciding.decide(policy, label, worker)
        denied = worker.id in self.denied
        return replace(verdict, allow=False, rule="changed") if denied else verdict


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Rules:
    return Rules(monkeypatch)


# -- policy before every attempt --------------------------------------------------------------


async def test_only_workers_that_the_label_allows_are_ever_tried(tmp_path: Path) -> None:
    box = kit(tmp_path, {name: fails(Failure.REFUSED) for name in "abxy"})
    given = ask(box, ("x", "a", "y", "b"), label="confidential+pii")
    error = await refused(box, given)
    assert box.caller.workers == ["a", "b"] and box.desk.minted == []
    assert isinstance(error, NoLocalBackend)
    assert outcomes(given)[:2] == [("x", "denied"), ("y", "denied")]


@pytest.mark.parametrize("failure", Failure)
async def test_whatever_fails_at_home_never_moves_abroad_with_a_label_that_may_not(
    failure: Failure, tmp_path: Path
) -> None:
    box = kit(tmp_path, {"a": fails(failure), "b": fails(failure)})
    await refused(box, ask(box, ("a", "b", "x", "y"), label="internal+pii"))
    assert set(box.caller.workers) <= {"a", "b"} and box.desk.minted == []


async def test_where_nobody_may_see_it_nobody_is_called(tmp_path: Path) -> None:
    box = kit(tmp_path)
    for order in (("x", "y"), ()):
        error = await refused(box, ask(box, order, label="restricted"))
        assert isinstance(error, PolicyBlocked) and error.headers["x-should-retry"] == "false"
    assert box.caller.calls == [] and box.audit.records == []


async def test_a_policy_that_changes_between_attempts_is_obeyed(
    tmp_path: Path, rules: Rules
) -> None:
    gate = asyncio.Event()
    box = kit(tmp_path, {"a": Act(gate=gate, fails=WorkerError(Failure.REFUSED))})
    given = ask(box)
    running = asyncio.create_task(answered(box, given))
    await settled()
    rules.denied = {"b", "x"}
    gate.set()
    assert await running == "y"
    assert box.caller.workers == ["a", "y"]
    assert ("b", "denied") in outcomes(given) and ("x", "denied") in outcomes(given)


async def test_a_retry_at_the_same_worker_asks_policy_again(tmp_path: Path, rules: Rules) -> None:
    gate = asyncio.Event()
    box = kit(tmp_path, {"a": Act(gate=gate, fails=WorkerError(Failure.CUT))})
    running = asyncio.create_task(answered(box, ask(box, ["a"])))
    await settled()
    rules.denied = {"a"}
    gate.set()
    with pytest.raises(PolicyBlocked, match="changed"):
        await running
    assert box.caller.workers == ["a"] and rules.asked == [
        "a",
        "a",
        "a",
    ]  # to list it, for its bytes, and again


async def test_the_worker_that_is_left_after_a_change_gets_its_second_try(
    tmp_path: Path, rules: Rules
) -> None:
    gate = asyncio.Event()
    acts = [Act(gate=gate, fails=WorkerError(Failure.CUT)), fails(Failure.CUT), Act()]
    box = kit(tmp_path, {"a": acts[0], "b": acts[1:]})
    running = asyncio.create_task(answered(box, ask(box)))
    await settled()
    rules.denied = {"x", "y"}
    gate.set()
    assert await running == "b"
    assert box.caller.workers == ["a", "b", "b"]


# -- the order of things ----------------------------------------------------------------------


async def test_a_remote_call_waits_until_both_records_are_on_disk(tmp_path: Path) -> None:
    box = kit(tmp_path, held=True)
    decision = box.audit.post("decision")
    running = asyncio.create_task(answered(box, ask(box, ["x"], durable=decision)))
    await settled()
    assert box.audit.counts == {"decision": 1, "egress": 1} and box.caller.calls == []
    box.audit.release("egress")
    await settled()
    assert box.caller.calls == []
    box.audit.release("decision")
    assert await running == "x"
    assert box.diary == [
        "posted decision",
        "permit x",
        "posted egress",
        "durable egress",
        "durable decision",
        "call x",
        "left x",
    ]


async def test_a_remote_call_waits_for_its_own_record_too(tmp_path: Path) -> None:
    box = kit(tmp_path, held=frozenset({"egress"}))
    running = asyncio.create_task(answered(box, ask(box, ["x"], stream=True)))
    await settled()
    assert box.caller.calls == []
    box.audit.release("egress")
    assert await running == "x"


async def test_a_local_call_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    box = kit(tmp_path)
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert await answered(box, ask(box, ["a"], durable=never)) == "a"
    assert box.audit.records == [] and box.desk.minted == []


@pytest.mark.parametrize("broken", ["decision", "egress"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_recorded_is_not_sent(
    tmp_path: Path, broken: str, stream: bool
) -> None:
    box = kit(tmp_path, broken=frozenset({broken}))
    given = ask(box, ["x", "y"], durable=box.audit.post("decision"), stream=stream)
    with pytest.raises(AuditError):
        await answered(box, given)
    assert box.caller.calls == []
    nothing_is_held(box, given)
    gc.collect()  # a future whose error nobody took would speak up here


async def test_every_attempt_abroad_has_a_record_and_a_permit_of_its_own(tmp_path: Path) -> None:
    box = kit(tmp_path, {"x": fails(Failure.SERVER_ERROR), "y": fails(Failure.SERVER_ERROR)})
    await refused(box, ask(box, ["x", "y"]))
    assert box.caller.workers == ["x", "y", "y"]
    permits = [made.permit for made in box.caller.calls]
    assert len(set(permits)) == 3 and None not in permits
    recorded = box.audit.events("egress")
    assert [(one["worker"], one["permit_id"]) for one in recorded] == [
        ("x", "p1"), ("y", "p2"), ("y", "p3"),
    ]  # fmt: skip
    for made, (worker, body, label), record in zip(
        box.caller.calls, box.desk.minted, recorded, strict=True
    ):
        assert (made.worker, label) == (worker, box.label())
        assert made.body["model"] == worker
        assert record["bytes_out"] == len(body) and record["label"] == "internal"
        assert record["destination"] == "frontier" and record["decision_id"] == "d1"


async def test_an_open_breaker_costs_no_budget_no_permit_and_no_call(tmp_path: Path) -> None:
    box = kit(tmp_path)
    box.pool.report(box.worker("x"), WorkerError(Failure.AUTH))
    given = ask(box, ["x", "a"])
    assert await answered(box, given) == "a"
    assert outcomes(given) == [("x", "open"), ("a", "ok")]
    assert given.budget.calls == 1 and box.desk.minted == []


async def test_without_room_in_the_budget_no_slot_is_taken_and_nothing_is_recorded(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path, limits=replace(ROOMY, max_calls=0))
    assert isinstance(await refused(box, ask(box, ["x"])), BudgetExhausted)
    assert box.diary == []


async def test_no_permit_is_minted_while_a_call_waits_for_its_slot(tmp_path: Path) -> None:
    narrow = remote_worker("x", limits={"max_in_flight": 1, "queue_wait_s": 5})
    gate = asyncio.Event()
    box = kit(tmp_path, {"x": Act(gate=gate)}, workers=[narrow])
    first = asyncio.create_task(answered(box, ask(box, ["x"])))
    await settled()
    second = asyncio.create_task(answered(box, ask(box, ["x"])))
    await settled()
    assert box.pool.status()[0]["queued"] == 1
    assert len(box.desk.minted) == 1 and box.audit.counts["egress"] == 1
    gate.set()
    assert await asyncio.gather(first, second) == ["x", "x"]
    assert len(box.desk.minted) == 2


async def test_time_that_ran_out_in_the_queue_sends_nothing(tmp_path: Path) -> None:
    box = kit(tmp_path)
    clock = iter([0.0, 0.0, *[99.0] * 9])
    given = ask(
        box, ["x"], budget=Budget(RequestLimits(5, 9, 9999, 1.0, 60.0), lambda: next(clock))
    )
    assert isinstance(await refused(box, given), UpstreamTimeout)
    assert box.caller.calls == []
    nothing_is_held(box, given)


async def test_in_local_only_mode_no_remote_worker_is_called_whoever_asks(tmp_path: Path) -> None:
    box = kit(tmp_path)
    box.attempts.desk = None
    assert await answered(box, ask(box, ["x", "a"])) == "a"
    assert box.caller.workers == ["a"] and box.audit.records == []


# -- failing over -----------------------------------------------------------------------------


async def test_a_refused_permit_is_tried_once_more_with_a_fresh_epoch(tmp_path: Path) -> None:
    box = kit(tmp_path, {"x": [fails(Failure.PERMIT), Act()]})
    assert await answered(box, ask(box, ["x", "y"])) == "x"
    assert [made.permit for made in box.caller.calls] == ["token-1-epoch-0", "token-2-epoch-1"]


async def test_a_permit_that_is_refused_again_moves_on_and_costs_nothing(tmp_path: Path) -> None:
    box = kit(tmp_path, {"x": fails(Failure.PERMIT)})
    given = ask(box, ["x", "a"])
    assert await answered(box, given) == "a"
    assert box.caller.workers == ["x", "x", "a"]
    assert [tried.usage for tried in given.tried[:2]] == [Usage(), Usage()]


async def test_what_is_too_long_moves_only_to_larger_windows(tmp_path: Path) -> None:
    pool = [
        local_worker("a", port=9001, limits={"context_tokens": 8192}),
        local_worker("b", port=9002, limits={"context_tokens": 4096}),
        local_worker("c", port=9003, limits={"context_tokens": 32768}),
    ]
    box = kit(tmp_path, {"a": fails(Failure.CONTEXT_LENGTH)}, workers=pool)
    assert await answered(box, ask(box, "abc")) == "c"
    assert box.caller.workers == ["a", "c"]


async def test_what_is_too_long_for_all_is_a_400_with_the_numbers(tmp_path: Path) -> None:
    too_long = fails(Failure.CONTEXT_LENGTH, window=(8192, 9000))
    box = kit(tmp_path, {"a": too_long})
    error = await refused(box, ask(box, ["a", "b"]))
    assert box.caller.workers == ["a"]
    assert (error.status, error.code) == (400, "context_length_exceeded")
    assert "8192" in error.message and "9000" in error.message


async def test_what_can_fit_no_window_is_not_even_sent(tmp_path: Path) -> None:
    box = kit(tmp_path, limits=RequestLimits(5, 9, 10**9, 1.0, 60.0))
    given = ask(box, ["a"], prompt_bytes=8192 * 32 + 1)
    assert (await refused(box, given)).code == "context_length_exceeded"
    assert box.caller.calls == []
    assert await answered(box, ask(box, ["a"], prompt_bytes=8192 * 32)) == "a"


async def test_a_narrow_window_is_not_blamed_while_the_wide_worker_is_down(tmp_path: Path) -> None:
    pool = [
        local_worker("a", port=9001, limits={"context_tokens": 32768}),
        local_worker("b", port=9002, limits={"context_tokens": 4096}),
    ]
    acts = {"a": fails(Failure.REFUSED), "b": fails(Failure.CONTEXT_LENGTH)}
    box = kit(tmp_path, acts, workers=pool)
    assert isinstance(await refused(box, ask(box, "ab")), NoLocalBackend)


async def test_a_bad_request_stops_at_once(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": fails(Failure.BAD_REQUEST)})
    assert isinstance(await refused(box, ask(box)), BadRequest)
    assert box.caller.workers == ["a"]


async def test_a_full_queue_moves_on_and_says_nothing_against_the_worker(tmp_path: Path) -> None:
    narrow = local_worker("a", port=9001, limits={"max_in_flight": 1, "max_queued": 0})
    gate = asyncio.Event()
    box = kit(tmp_path, {"a": Act(gate=gate)}, workers=[narrow, local_worker("b", port=9002)])
    first = asyncio.create_task(answered(box, ask(box, "a")))
    await settled()
    assert await answered(box, ask(box, "ab")) == "b"
    error = await refused(box, ask(box, "a"))
    assert isinstance(error, Overloaded) and int(error.headers["Retry-After"]) >= 1
    assert box.pool.status()[0]["state"] == "closed"
    gate.set()
    await first


@pytest.mark.parametrize(
    ("states", "seconds"),
    [
        ([("a", Failure.RATE_LIMITED, 40.0), ("b", Failure.RATE_LIMITED, 20.0)], "20"),
        ([("a", Failure.RATE_LIMITED, 40.0), ("b", Failure.SERVER_ERROR, None)], "1"),
        ([("a", Failure.RATE_LIMITED, 3600.0), ("b", Failure.RATE_LIMITED, 3600.0)], "3600"),
        ([("a", Failure.LOADING, 7.5), ("b", Failure.OVERLOADED, 9.0)], "8"),
        ([("a", Failure.REFUSED, None), ("b", Failure.REFUSED, None)], "1"),
    ],
)
async def test_retry_after_is_when_the_first_of_them_may_be_tried_again(
    tmp_path: Path, states: list[tuple[str, Failure, float | None]], seconds: str
) -> None:
    acts = {name: fails(failure, retry_after_s=wait) for name, failure, wait in states}
    box = kit(tmp_path, acts)
    error = await refused(box, ask(box, "ab"))
    assert error.headers["Retry-After"] == seconds


async def test_retry_after_covers_the_breaker_of_a_worker_that_says_nothing(tmp_path: Path) -> None:
    patient = fails(Failure.RATE_LIMITED, retry_after_s=200.0)
    box = kit(tmp_path, {"a": fails(Failure.REFUSED), "b": patient})
    breaker = box.pool._members["a"].breaker
    for _ in range(6):  # each time it stays open twice as long
        box.pool.report(box.worker("a"), WorkerError(Failure.REFUSED))
        breaker._open_until = 0.0
    error = await refused(box, ask(box, "ab"))
    assert box.caller.workers == ["a", "b"] and error.headers["Retry-After"] == "60"


# -- accounting -------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_worker_reports_is_what_is_booked(tmp_path: Path, stream: bool) -> None:
    box = kit(tmp_path, {"x": Act("one two three", usage=(100, 50))})
    given = ask(box, ["x"], stream=stream, earlier=Usage(1000, 500))
    async with box.attempts.begin(given) as begun:
        bodies = [begun.body] if begun.chunks is None else [c async for c in begun.chunks]
    usage = bodies[-1]["usage"]  # type: ignore[index]
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (1100, 1650)
    (tried,) = given.tried
    assert tried.usage == Usage(100, 50) and tried.outcome == "ok"
    assert tried.cost_usd == given.budget.cost_usd == pytest.approx(300e-6)
    nothing_is_held(box, given)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_empty_answer_is_booked_as_reported(tmp_path: Path, stream: bool) -> None:
    box = kit(tmp_path, {"a": Act("", usage=(100, 1))})
    given = ask(box, ["a"], stream=stream)
    assert await answered(box, given) == "a"
    assert given.tried[0].usage == Usage(100, 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_without_a_report_the_prompt_is_estimated(tmp_path: Path, stream: bool) -> None:
    box = kit(tmp_path, {"a": Act("one two", usage=None)})
    given = ask(box, ["a"], stream=stream)
    await answered(box, given)
    assert given.tried[0].usage == Usage(estimate_tokens(PROMPT_BYTES), 2, estimated=True)


async def test_a_stream_left_in_the_middle_is_billed_for_prompt_and_what_came(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path, {"x": Act("one two three four")})
    given = ask(box, ["x"], stream=True)
    async with box.attempts.begin(given) as begun:
        assert begun.chunks is not None
        await anext(begun.chunks)
        await anext(begun.chunks)
    (tried,) = given.tried
    assert tried.outcome == "aborted"
    assert tried.usage.prompt_tokens == estimate_tokens(PROMPT_BYTES)
    assert tried.usage.completion_tokens >= 1 and tried.usage.estimated
    assert given.budget.cost_usd > 0
    nothing_is_held(box, given)


BILLED = {
    Failure.CUT,
    Failure.MALFORMED,
    Failure.SERVER_ERROR,
    Failure.FIRST_BYTE_TIMEOUT,
    Failure.IDLE_TIMEOUT,
    Failure.TOTAL_TIMEOUT,
}


@pytest.mark.parametrize("failure", sorted(set(Failure) - {Failure.OPEN}))
async def test_a_vendor_is_paid_for_what_it_may_have_worked_on_and_for_nothing_else(
    tmp_path: Path, failure: Failure
) -> None:
    box = kit(tmp_path, {name: fails(failure) for name in "ax"})
    given = ask(box, ["x"])
    await refused(box, given)
    costs = [tried.cost_usd for tried in given.tried if tried.outcome == failure]
    assert costs and all((cost > 0) is (failure in BILLED) for cost in costs)
    home = ask(box, ["a"])
    await refused(box, home)
    assert all(tried.usage == Usage() for tried in home.tried)
    nothing_is_held(box, given)


async def test_the_allowance_is_what_the_worker_may_write(tmp_path: Path) -> None:
    limits = {"max_output_tokens": 100}
    box = kit(tmp_path, workers=[local_worker("a", port=9001, limits=limits)])
    for wanted, sent in ((None, 100), (7, 7), (500, 100)):
        await answered(box, ask(box, ["a"], wanted_tokens=wanted))
        assert box.caller.calls[-1].body["max_tokens"] == sent


async def test_many_choices_share_the_room_of_one(tmp_path: Path) -> None:
    box = kit(tmp_path, limits=RequestLimits(5, 9, 101 + 90, 1.0, 60.0))
    await answered(box, ask(box, ["a"], choices=9))
    assert box.caller.calls[-1].body["max_tokens"] == 10


async def test_a_call_never_outlives_the_request(tmp_path: Path) -> None:
    box = kit(tmp_path, limits=RequestLimits(5, 9, 9999, 1.0, 5.0))
    await answered(box, ask(box, ["a"]))
    assert 0 < box.caller.calls[-1].total_s <= 5.0


# -- streams that end early -------------------------------------------------------------------


async def test_a_stream_that_breaks_before_content_fails_over(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act("", breaks_off=WorkerError(Failure.CUT))})
    given = ask(box, ["a", "b"], stream=True)
    assert await answered(box, given) == "b"
    assert outcomes(given) == [("a", "cut"), ("b", "ok")]


async def test_a_stream_that_breaks_after_content_never_fails_over(tmp_path: Path) -> None:
    cut = WorkerError(Failure.CUT, began=True)
    box = kit(tmp_path, {"a": Act("one two", breaks_off=cut)})
    given = ask(box, ["a", "b"], stream=True)
    with pytest.raises(WorkerError) as caught:
        await answered(box, given)
    assert caught.value is cut and box.caller.workers == ["a"]
    assert outcomes(given) == [("a", "cut")]
    nothing_is_held(box, given)


async def test_a_break_after_content_counts_against_the_worker_once(tmp_path: Path) -> None:
    cut = WorkerError(Failure.CUT, began=True)
    box = kit(tmp_path, {"a": Act("one", breaks_off=cut)})
    states = []
    for _ in range(3):
        with pytest.raises(WorkerError):
            await answered(box, ask(box, ["a"], stream=True))
        states.append(box.pool.status()[0]["state"])
    assert states == ["closed", "closed", "open"]


# -- nothing is left behind -------------------------------------------------------------------


async def leaving(box: Kit, given: Ask, read: int, how: type[BaseException] | None) -> None:
    with suppress(ZeroDivisionError, ConnectionResetError, asyncio.CancelledError):
        async with box.attempts.begin(given) as begun:
            for _ in range(read):
                await anext(begun.chunks)  # type: ignore[arg-type]
            if how is not None:
                raise how


@pytest.mark.parametrize("how", [None, ZeroDivisionError, ConnectionResetError])
@pytest.mark.parametrize("read", [0, 1, 2, 3, 5])
async def test_whoever_leaves_a_stream_closes_it_to_the_last_generator(
    tmp_path: Path, read: int, how: type[BaseException] | None
) -> None:
    left: list[str] = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=lambda agen: left.append(agen.__qualname__))
    try:
        box = kit(tmp_path, {"x": Act("one two three four five six")})
        given = ask(box, ["x"], stream=True)
        await leaving(box, given, read, how)
        nothing_is_held(box, given)
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert left == []
    assert outcomes(given) == [("x", "aborted")]


@pytest.mark.parametrize(
    "where", ["queued", "recording", "before the first byte", "before content", "mid-stream"]
)
async def test_a_cancelled_attempt_gives_everything_back_wherever_it_stood(
    tmp_path: Path, where: str
) -> None:
    pool = [remote_worker("x", limits={"max_in_flight": 1, "queue_wait_s": 60})]
    acts = {
        "queued": Act(gate=asyncio.Event()),
        "recording": Act(),
        "before the first byte": Act(gate=asyncio.Event()),
        "before content": Act("", hangs=True),
        "mid-stream": Act("one two", hangs=True),
    }
    held = frozenset({"egress"}) if where == "recording" else False
    box = kit(tmp_path, {"x": acts[where]}, workers=pool, held=held)
    given, other = ask(box, ["x"], stream=True), ask(box, ["x"], stream=True)
    tasks = [asyncio.create_task(answered(box, given))]
    await settled()
    if where == "queued":
        tasks.append(asyncio.create_task(answered(box, other)))
        await settled()
        assert box.pool.status()[0]["queued"] == 1
    for task in reversed(tasks):
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    nothing_is_held(box, given)
    assert all(outcome == "aborted" for _, outcome in outcomes(given) + outcomes(other))
    assert box.pool.status()[0]["state"] == "closed"  # what the client ended says nothing of it
    sent = where in ("before the first byte", "before content", "mid-stream")
    assert (given.budget.cost_usd > 0) is (sent or where == "queued")


async def test_a_fault_of_ours_in_the_middle_settles_the_attempt_too(tmp_path: Path) -> None:
    box = kit(tmp_path)

    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    given = ask(box, ["a"], body=broken)
    with pytest.raises(ZeroDivisionError):
        await answered(box, given)
    nothing_is_held(box, given)


async def test_hundreds_at_once_give_every_place_back(tmp_path: Path) -> None:
    pool = [local_worker("a", port=9001, limits={"max_in_flight": 4, "max_queued": 1000})]
    acts = [fails(Failure.CUT), Act(), Act("one two"), fails(Failure.MALFORMED), Act()]
    box = kit(tmp_path, {"a": acts * 40}, workers=pool)
    given = [ask(box, ["a"], stream=place % 2 == 0) for place in range(100)]
    tasks = [asyncio.create_task(answered(box, one)) for one in given]
    await asyncio.sleep(0)
    for task in tasks[::7]:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        assert task.cancelled() or isinstance(task.exception(), UpstreamFailed | ApiError | None)
    assert box.caller.peak <= 4
    for one in given:
        nothing_is_held(box, one)
