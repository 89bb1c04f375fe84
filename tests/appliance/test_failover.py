"""Which failures are tried again, where, and what the client is told in the end."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Failure, TcpEndpoint, Worker
from conductor.errors import ApiError, WorkerError
from conductor.run.failover import Move, Route, final_error, next_move
from support.rawpeer import local_worker

RETRY, NEXT, STOP = Move.RETRY, Move.NEXT, Move.STOP

# failure: first try with others left, second try with others left, first try alone, second alone
MOVES: dict[Failure, tuple[Move, Move, Move, Move]] = {
    Failure.REFUSED: (NEXT, NEXT, STOP, STOP),
    Failure.CONNECT_TIMEOUT: (NEXT, NEXT, STOP, STOP),
    Failure.FIRST_BYTE_TIMEOUT: (NEXT, NEXT, STOP, STOP),
    Failure.IDLE_TIMEOUT: (NEXT, NEXT, STOP, STOP),
    Failure.TOTAL_TIMEOUT: (STOP, STOP, STOP, STOP),
    Failure.CUT: (NEXT, NEXT, RETRY, STOP),
    Failure.MALFORMED: (NEXT, NEXT, RETRY, STOP),
    Failure.SERVER_ERROR: (NEXT, NEXT, RETRY, STOP),
    Failure.LOADING: (NEXT, NEXT, STOP, STOP),
    Failure.OVERLOADED: (NEXT, NEXT, STOP, STOP),
    Failure.RATE_LIMITED: (NEXT, NEXT, STOP, STOP),
    Failure.BAD_REQUEST: (STOP, STOP, STOP, STOP),
    Failure.CONTEXT_LENGTH: (NEXT, NEXT, STOP, STOP),
    Failure.AUTH: (NEXT, NEXT, STOP, STOP),
    Failure.PERMIT: (RETRY, NEXT, RETRY, STOP),
    Failure.OPEN: (NEXT, NEXT, STOP, STOP),
    Failure.EGRESS_DOWN: (NEXT, NEXT, STOP, STOP),
}

# failure: status, code, when it is all that happened; at home, and abroad where that differs
ALONE: dict[Failure, tuple[int, str | None]] = {
    Failure.REFUSED: (503, "no_local_backend"),
    Failure.CONNECT_TIMEOUT: (503, "no_local_backend"),
    Failure.FIRST_BYTE_TIMEOUT: (504, "upstream_timeout"),
    Failure.IDLE_TIMEOUT: (504, "upstream_timeout"),
    Failure.TOTAL_TIMEOUT: (504, "upstream_timeout"),
    Failure.CUT: (503, "no_local_backend"),
    Failure.MALFORMED: (502, "upstream_error"),
    Failure.SERVER_ERROR: (502, "upstream_error"),
    Failure.LOADING: (503, "model_loading"),
    Failure.OVERLOADED: (503, "overloaded"),
    Failure.RATE_LIMITED: (503, "overloaded"),
    Failure.BAD_REQUEST: (400, None),
    Failure.CONTEXT_LENGTH: (400, "context_length_exceeded"),
    Failure.AUTH: (502, "upstream_error"),
    Failure.PERMIT: (502, "upstream_error"),
    Failure.OPEN: (503, "no_local_backend"),
    Failure.EGRESS_DOWN: (503, "no_local_backend"),
}
TRANSIENT = sorted(set(Failure) - {Failure.BAD_REQUEST, Failure.CONTEXT_LENGTH})


def error(failure: Failure, **more: object) -> WorkerError:
    return WorkerError(failure, "secret detail of 10.0.0.7", **more)  # type: ignore[arg-type]


def final(*failures: Failure, only_local: bool = True, wait_s: float = 7.2) -> ApiError:
    found = [error(failure) for failure in failures]
    return final_error(found, only_local=only_local, retry_after_s=wait_s)


def worker(name: str, context_tokens: int = 8192) -> Worker:
    return local_worker(TcpEndpoint("127.0.0.1", 9), name, context_tokens=context_tokens)


# -- the next move ----------------------------------------------------------------------------


@pytest.mark.parametrize("failure", Failure)
def test_every_failure_has_its_written_moves(failure: Failure) -> None:
    found = [next_move(failure, tries, others) for others in (True, False) for tries in (1, 2)]
    assert tuple(found) == MOVES[failure]


@pytest.mark.parametrize("failure", Failure)
def test_no_failure_is_retried_for_ever(failure: Failure) -> None:
    assert all(next_move(failure, tries, False) is STOP for tries in range(2, 100))


# -- the way through the workers --------------------------------------------------------------


def walk(workers: list[Worker], errors: list[WorkerError]) -> list[str]:
    """Ids in the order in which they are tried while `errors` happen."""
    route, tried = Route(workers), []
    for one in errors:
        tried.append(route.waiting[0].id)
        if not route.goes_on_after(one):
            return tried
    return [*tried, route.waiting[0].id]


def test_workers_are_tried_in_order_and_the_last_once_more() -> None:
    three = [worker("a"), worker("b"), worker("c")]
    assert walk(three, [error(Failure.CUT)] * 9) == ["a", "b", "c", "c"]
    assert walk(three, [error(Failure.REFUSED)] * 9) == ["a", "b", "c"]
    assert walk(three, [error(Failure.BAD_REQUEST)] * 9) == ["a"]


def test_a_refused_permit_is_tried_once_more_at_the_same_worker() -> None:
    two = [worker("a"), worker("b")]
    assert walk(two, [error(Failure.PERMIT)] * 9) == ["a", "a", "b", "b"]


def test_what_was_too_long_goes_only_to_a_larger_window() -> None:
    pool = [worker("a", 8000), worker("b", 4000), worker("c", 8000), worker("d", 32_000)]
    assert walk(pool, [error(Failure.CONTEXT_LENGTH)] * 9) == ["a", "d"]
    assert walk(pool[:3], [error(Failure.CONTEXT_LENGTH)] * 9) == ["a"]


def test_a_window_that_a_worker_states_counts_more_than_the_configured_one() -> None:
    pool = [worker("a", 8000), worker("b", 4000), worker("c", 32_000)]
    assert walk(pool, [error(Failure.CONTEXT_LENGTH, window=(2048, 3000))]) == ["a", "b"]
    assert walk(pool, [error(Failure.CONTEXT_LENGTH, window=(16_000, 17_000))]) == ["a", "c"]


def test_a_narrow_worker_stays_out_after_another_failure_too() -> None:
    pool = [worker("a", 8000), worker("b", 32_000), worker("c", 4000), worker("d", 32_000)]
    errors = [error(Failure.CONTEXT_LENGTH), error(Failure.REFUSED)]
    assert walk(pool, errors) == ["a", "b", "d"]


def test_the_answer_is_about_the_window_unless_a_wide_worker_was_only_down() -> None:
    wide, narrow = worker("wide", 32_000), worker("narrow", 4000)
    for first, second in (
        ((wide, Failure.REFUSED), (narrow, Failure.CONTEXT_LENGTH)),
        ((narrow, Failure.CONTEXT_LENGTH), (wide, Failure.REFUSED)),
    ):
        route = Route([first[0], second[0]])
        route.goes_on_after(error(first[1]))
        route.goes_on_after(error(second[1]))
        assert [one.failure for one in route.errors] == [Failure.REFUSED]
    route = Route([narrow, wide])
    route.goes_on_after(error(Failure.REFUSED))
    route.goes_on_after(error(Failure.CONTEXT_LENGTH))
    assert [one.failure for one in route.errors] == [Failure.CONTEXT_LENGTH]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.sampled_from(sorted(Failure)), min_size=20, max_size=20),
)
def test_every_way_ends_visits_nobody_more_than_twice_and_never_goes_back(
    windows: list[int], failures: list[Failure]
) -> None:
    pool = [worker(f"w{place}", window) for place, window in enumerate(windows)]
    tried = walk(pool, [error(failure) for failure in failures])
    assert len(tried) <= 2 * len(pool) and tried == sorted(tried)
    assert all(tried.count(one) <= 2 for one in tried)


# -- what the client is told ------------------------------------------------------------------


@pytest.mark.parametrize("failure", Failure)
def test_every_failure_alone_has_its_written_answer(failure: Failure) -> None:
    found = final(failure)
    assert (found.status, found.code) == ALONE[failure]


@pytest.mark.parametrize("failure", Failure)
def test_where_a_remote_worker_was_tried_there_is_no_word_of_local_ones(failure: Failure) -> None:
    found = final(failure, only_local=False)
    status, code = ALONE[failure]
    expected = (502, "upstream_error") if code == "no_local_backend" else (status, code)
    assert (found.status, found.code) == expected


@pytest.mark.parametrize("pair", list(combinations(TRANSIENT, 2)), ids="-".join)
def test_two_failures_give_one_answer_in_either_order(pair: tuple[Failure, Failure]) -> None:
    there, back = final(*pair), final(*reversed(pair))
    assert (type(there), there.headers) == (type(back), back.headers)
    codes = {ALONE[failure][1] for failure in pair}
    for code in ("model_loading", "overloaded"):
        if code in codes:
            assert there.code == code
            return
    if codes == {"no_local_backend"}:
        assert there.code == "no_local_backend"
    elif "upstream_timeout" in codes:
        assert there.code == "upstream_timeout"
    else:
        assert there.code == "upstream_error"


@pytest.mark.parametrize("failure", Failure)
def test_a_503_always_says_when_to_come_back_and_nothing_else_does(failure: Failure) -> None:
    found = final(failure)
    assert found.headers.get("Retry-After") == ("8" if found.status == 503 else None)


def test_a_full_context_tells_its_numbers_in_the_words_that_clients_look_for() -> None:
    numbered = [error(Failure.CONTEXT_LENGTH, window=(4096, 5000))]
    found = final_error(numbered, only_local=True, retry_after_s=1)
    assert "maximum context length is 4096 tokens" in found.message and "5000" in found.message
    assert found.param == "messages"
    assert "maximum context length" in final(Failure.CONTEXT_LENGTH).message


@pytest.mark.parametrize("failure", Failure)
def test_no_answer_repeats_what_a_worker_said(failure: Failure) -> None:
    for only_local in (True, False):
        assert "10.0.0.7" not in str(final(failure, only_local=only_local).envelope())
