"""The breaker as a table of what happens when, and properties that hold whatever happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Failure
from conductor.workers.breaker import AT_ONCE, IN_A_ROW, STATED, Breaker, BreakerLimits

LIMITS = BreakerLimits(
    failures=3, first_open_s=1.0, max_open_s=8.0, sole_max_open_s=2.0, max_stated_s=100.0
)
NEUTRAL = set(Failure) - AT_ONCE - IN_A_ROW - STATED


def breaker(*, sole: bool = False) -> Breaker:
    return Breaker(LIMITS, sole=sole)


def test_it_begins_closed():
    state = breaker().state(0.0)
    assert (state.state, state.reason, state.reopen_in_s) == ("closed", None, 0.0)


@pytest.mark.parametrize("failure", sorted(AT_ONCE))
def test_a_failure_that_speaks_for_itself_opens_it_at_once(failure):
    it = breaker()
    it.fail(failure, 10.0)
    state = it.state(10.0)
    assert (state.state, state.reason, state.reopen_in_s) == ("open", failure, 1.0)


@pytest.mark.parametrize("failure", sorted(IN_A_ROW))
def test_other_failures_open_it_after_three_in_a_row(failure):
    it = breaker()
    it.fail(failure, 0.0)
    it.fail(failure, 0.0)
    assert it.allows(0.0)
    it.fail(failure, 0.0)
    assert not it.allows(0.0)


def test_a_success_in_between_starts_the_count_again():
    it = breaker()
    for _ in range(5):
        it.fail(Failure.SERVER_ERROR, 0.0)
        it.fail(Failure.CUT, 0.0)
        it.succeed(0.0)
    assert it.state(0.0).state == "closed"


@pytest.mark.parametrize("failure", sorted(NEUTRAL))
def test_what_the_worker_did_not_cause_never_counts(failure):
    it = breaker()
    for _ in range(100):
        it.fail(failure, 0.0)
    assert it.state(0.0).state == "closed"


def test_client_errors_and_our_own_are_among_what_never_counts():
    assert {
        *(Failure.BAD_REQUEST, Failure.CONTEXT_LENGTH, Failure.PERMIT),
        *(Failure.OPEN, Failure.TOTAL_TIMEOUT),
    } == NEUTRAL


@pytest.mark.parametrize("failure", sorted(STATED))
def test_a_stated_wait_is_kept(failure):
    it = breaker()
    it.fail(failure, 0.0, retry_after_s=30.0)
    assert it.state(0.0).reopen_in_s == 30.0
    assert not it.allows(29.9)
    assert it.allows(30.0)


@pytest.mark.parametrize("stated", [1e9, float("inf")])
def test_a_stated_wait_is_believed_only_up_to_a_bound(stated):
    it = breaker()
    it.fail(Failure.RATE_LIMITED, 0.0, retry_after_s=stated)
    assert it.state(0.0).reopen_in_s == 100.0


def test_each_failed_probe_doubles_the_wait_up_to_the_cap():
    it, now, waits = breaker(), 0.0, []
    for _ in range(6):
        it.fail(Failure.REFUSED, now)
        waits.append(it.state(now).reopen_in_s)
        now += waits[-1]
        assert it.enter(now) == "probe"
        it.leave()
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_a_sole_worker_is_probed_often():
    it, now = breaker(sole=True), 0.0
    for _ in range(6):
        it.fail(Failure.REFUSED, now)
        assert it.state(now).reopen_in_s <= 2.0
        now += it.state(now).reopen_in_s
        assert it.enter(now) == "probe"
    it.fail(Failure.LOADING, now, retry_after_s=60.0)
    assert it.state(now).reopen_in_s == 2.0


def test_a_sole_worker_s_rate_limit_is_kept_all_the_same():
    it = breaker(sole=True)
    it.fail(Failure.RATE_LIMITED, 0.0, retry_after_s=60.0)
    assert it.state(0.0).reopen_in_s == 60.0


def test_half_open_lets_a_single_probe_through():
    it = breaker()
    it.fail(Failure.REFUSED, 0.0)
    assert it.enter(0.5) == "refused"
    assert it.state(1.0).state == "half_open"
    assert it.enter(1.0) == "probe"
    assert it.enter(1.0) == "refused"
    assert it.state(1.0).reopen_in_s > 0


def test_a_successful_probe_closes_it_and_the_next_opening_is_short_again():
    it = breaker()
    it.fail(Failure.REFUSED, 0.0)
    it.enter(1.0)
    it.fail(Failure.REFUSED, 1.0)
    it.enter(3.0)
    it.succeed(3.0)
    assert it.state(3.0).state == "closed"
    it.fail(Failure.REFUSED, 4.0)
    assert it.state(4.0).reopen_in_s == 1.0


def test_a_probe_that_never_reports_frees_its_place_after_a_while():
    it = breaker()
    it.fail(Failure.REFUSED, 0.0)
    assert it.enter(1.0) == "probe"
    assert it.enter(30.9) == "refused"
    assert it.enter(31.0) == "probe"


def test_a_probe_that_ends_without_a_verdict_frees_its_place_at_once():
    it = breaker()
    it.fail(Failure.REFUSED, 0.0)
    assert it.enter(1.0) == "probe"
    it.fail(Failure.BAD_REQUEST, 1.0)
    it.leave()
    assert it.state(1.0).state == "half_open"
    assert it.enter(1.0) == "probe"


def test_what_other_calls_report_does_not_free_the_place_of_the_probe():
    it = breaker()
    it.fail(Failure.REFUSED, 0.0)
    assert it.enter(1.0) == "probe"
    it.fail(Failure.BAD_REQUEST, 1.0)
    assert it.enter(1.0) == "refused"


def test_ten_calls_that_die_together_count_as_one():
    it = breaker()
    for _ in range(10):
        it.fail(Failure.REFUSED, 0.0)
    assert it.state(0.0).reopen_in_s == 1.0


def test_an_old_success_does_not_close_it():
    it = breaker()
    it.fail(Failure.REFUSED, 0.0)
    it.succeed(0.5)
    assert it.state(0.5).state == "open"


EVENTS = st.one_of(
    st.tuples(
        st.just("fail"),
        st.sampled_from(sorted(Failure)),
        st.one_of(st.none(), st.floats(0, 1e6)),
    ),
    st.tuples(st.sampled_from(["enter", "leave", "succeed"])),
)


@given(st.lists(st.tuples(st.floats(0, 50), EVENTS)), st.booleans())
def test_whatever_happens_it_lets_a_call_through_in_bounded_time_and_one_probe_at_a_time(
    history, sole
):
    it, now = breaker(sole=sole), 0.0
    for wait, (kind, *facts) in history:
        now += wait
        if kind == "fail":
            it.fail(facts[0], now, facts[1])
        elif kind == "enter":
            if it.enter(now) == "probe":
                assert it.enter(now) == "refused"
        else:
            it.leave() if kind == "leave" else it.succeed(now)
        state = it.state(now)
        assert 0.0 <= state.reopen_in_s <= LIMITS.max_stated_s + 1e-6
        assert (state.reason is None) == (state.state == "closed")
        assert it.allows(now) == (state.reopen_in_s == 0.0)
    assert it.allows(now + LIMITS.max_stated_s + 1.0)
