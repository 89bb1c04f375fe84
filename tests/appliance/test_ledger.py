"""Money: never overspent by parallel requests, always given back, remembered over a restart."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.audit.log import AuditLog
from conductor.audit.segments import read_since
from conductor.errors import BudgetExhausted
from conductor.ledger import Ledger, Reservation, to_musd


class Clock:
    def __init__(self, text: str = "2026-08-01T12:00:00") -> None:
        self.set(text)

    def set(self, text: str) -> None:
        self.now = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        return self.now


def ledger(**budgets: float | None) -> Ledger:
    return Ledger(budgets, Clock())


def test_what_was_spent_counts_and_what_was_only_reserved_comes_back() -> None:
    book = ledger(app=1.0)
    with book.reserve("app", 0.6) as reservation:
        assert book.remaining_usd("app") == pytest.approx(0.4)
        assert reservation.settle(0.25) == 250_000
    assert book.spent_usd("app") == 0.25
    assert book.remaining_usd("app") == 0.75


def test_a_reservation_is_released_when_the_work_fails() -> None:
    book = ledger(app=1.0)
    with pytest.raises(ZeroDivisionError):
        with book.reserve("app", 1.0):
            raise ZeroDivisionError
    assert book.remaining_usd("app") == 1.0


async def test_a_reservation_is_released_when_the_work_is_cancelled() -> None:
    book = ledger(app=1.0)

    async def work() -> None:
        with book.reserve("app", 1.0):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    assert book.remaining_usd("app") == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert book.remaining_usd("app") == 1.0


async def test_ten_thousand_at_once_cannot_overspend() -> None:
    book = ledger(app=1.0)
    served = 0

    async def request() -> None:
        nonlocal served
        try:
            with book.reserve("app", 0.01) as reservation:
                await asyncio.sleep(0)
                reservation.settle(0.01)
                served += 1
        except BudgetExhausted:
            pass

    await asyncio.gather(*(request() for _ in range(10_000)))
    assert served == 100
    assert book.spent_usd("app") == 1.0


def test_the_refusal_names_the_reset_and_stops_clients_from_retrying() -> None:
    book = ledger(app=0.5)
    with pytest.raises(BudgetExhausted) as caught:
        book.reserve("app", 0.51)
    assert "2026-08-02T00:00:00Z" in caught.value.message
    assert caught.value.status == 429
    assert caught.value.headers["x-should-retry"] == "false"


def test_a_budget_can_be_spent_to_the_last_cent_but_not_beyond() -> None:
    book = ledger(app=0.3)
    book.reserve("app", 0.1).settle(0.1)
    book.reserve("app", 0.2).settle(0.2)
    with pytest.raises(BudgetExhausted):
        book.reserve("app", 0.000001)
    book.reserve("app", 0.0).release()


def test_a_cost_beyond_the_reservation_is_booked_all_the_same() -> None:
    book = ledger(app=1.0)
    book.reserve("app", 0.1).settle(1.5)
    assert book.spent_usd("app") == 1.5
    assert book.remaining_usd("app") == 0


def test_no_budget_means_no_limit_and_zero_means_nothing_paid() -> None:
    book = ledger(free=None, broke=0.0)
    book.reserve("free", 1e6).settle(1e6)
    assert book.remaining_usd("free") is None
    with pytest.raises(BudgetExhausted):
        book.reserve("broke", 0.01)
    book.reserve("broke", 0.0).settle(0.0)


def test_settling_twice_or_after_release_is_a_mistake_and_releasing_twice_is_none() -> None:
    book = ledger(app=1.0)
    settled, released = book.reserve("app", 0.1), book.reserve("app", 0.1)
    settled.settle(0.05)
    released.release()
    released.release()
    for reservation in (settled, released):
        with pytest.raises(RuntimeError):
            reservation.settle(0.05)
    assert book.remaining_usd("app") == 0.95


@pytest.mark.parametrize("usd", [-0.01, float("nan"), float("inf"), float("-inf")])
def test_impossible_amounts_are_refused_and_change_nothing(usd: float) -> None:
    book = ledger(app=1.0)
    with pytest.raises(ValueError, match="amount"):
        book.reserve("app", usd)
    with book.reserve("app", 0.5) as reservation:
        with pytest.raises(ValueError, match="amount"):
            reservation.settle(usd)
    assert book.remaining_usd("app") == 1.0


def test_amounts_are_rounded_up_to_whole_micro_usd_but_not_by_binary_fractions() -> None:
    assert to_musd(0.0000001) == 1
    assert to_musd(0.1 + 0.2) == 300_000
    assert to_musd(0.0000012) == 2
    assert to_musd(0.0) == 0


def test_an_unknown_key_has_no_account() -> None:
    with pytest.raises(KeyError):
        ledger(app=1.0).reserve("other", 0.1)


def test_the_budget_starts_anew_at_midnight_utc() -> None:
    clock = Clock("2026-08-01T23:59:59")
    book = Ledger({"app": 1.0}, clock)
    book.reserve("app", 1.0).settle(1.0)
    clock.set("2026-08-02T00:00:00")
    assert book.remaining_usd("app") == 1.0
    assert book.today == "2026-08-02"


def test_a_reservation_over_midnight_is_booked_on_the_new_day() -> None:
    clock = Clock("2026-08-01T23:59:59")
    book = Ledger({"app": 1.0}, clock)
    reservation = book.reserve("app", 0.7)
    clock.set("2026-08-02T00:00:01")
    with pytest.raises(BudgetExhausted):
        book.reserve("app", 0.5)
    reservation.settle(0.6)
    assert book.remaining_usd("app") == 0.4


def test_a_clock_set_back_opens_no_second_budget() -> None:
    clock = Clock("2026-08-02T00:00:01")
    book = Ledger({"app": 1.0}, clock)
    book.reserve("app", 1.0).settle(1.0)
    clock.set("2026-08-01T12:00:00")
    assert book.remaining_usd("app") == 0
    clock.set("2026-08-02T12:00:00")
    assert book.remaining_usd("app") == 0


def test_a_crash_between_two_rounds_costs_what_was_put_aside_and_that_once() -> None:
    book = Ledger({"app": 1.0}, Clock("2026-08-01T12:00:00"))
    book.restore(
        [
            record("decision", "d1", reserved_musd=300_000),
            record("round", "d1"),
            record("decision", "d2", reserved_musd=300_000),
            record("round", "d2"),
            record("outcome", "d2", cost_musd=100_000),
        ]
    )
    assert book.spent_usd("app") == 0.4


def record(event: str, decision: str, ts: str = "2026-08-01T08:00:00.000Z", **more: Any) -> Any:
    return {"event": event, "decision_id": decision, "key": "app", "ts": ts, **more}


def test_a_restart_remembers_what_was_spent_and_fears_for_what_was_unfinished() -> None:
    book = ledger(app=1.0)
    yesterday = "2026-07-31T23:59:59.999Z"
    book.restore(
        [
            record("decision", "old", yesterday, reserved_musd=900_000),
            record("outcome", "older", yesterday, cost_musd=900_000),
            record("decision", "done", reserved_musd=500_000),
            record("outcome", "done", cost_musd=100_000),
            record("decision", "crashed", reserved_musd=200_000),
            record("decision", "gone", reserved_musd=900_000, key="removed-key"),
            record("outcome", "old", cost_musd=50_000),
            {"event": "start", "ts": "2026-08-01T08:00:00.000Z"},
        ]
    )
    assert book.spent_usd("app") == pytest.approx(0.35)


async def test_the_audit_log_itself_is_the_store() -> None:
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-ledger-"))
    log = AuditLog.open(directory)
    first = Ledger({"app": 1.0})
    with first.reserve("app", 0.5) as reservation:
        await log.append("decision", decision_id="a", key="app", reserved_musd=reservation.musd)
        await log.append(
            "outcome", decision_id="a", key="app", cost_musd=reservation.settle(0.123456)
        )
    await log.append(
        "decision", decision_id="b", key="app", reserved_musd=first.reserve("app", 0.4).musd
    )
    await log.close()
    second = Ledger({"app": 1.0})
    second.restore(read_since(directory, second.today))
    assert second.spent_usd("app") == pytest.approx(0.523456)
    shutil.rmtree(directory)


AMOUNTS = st.floats(min_value=0, max_value=2, allow_nan=False)


@given(
    st.lists(
        st.tuples(st.sampled_from(["reserve", "settle", "release"]), AMOUNTS, st.integers(0, 5)),
        max_size=40,
    )
)
def test_the_books_always_balance(steps: list[tuple[str, float, int]]) -> None:
    book = ledger(app=5.0)
    open_: list[tuple[Reservation, int]] = []
    spent = 0
    for what, usd, which in steps:
        if what == "reserve":
            try:
                reservation = book.reserve("app", usd)
            except BudgetExhausted:
                assert spent + sum(m for _, m in open_) + to_musd(usd) > 5_000_000
                continue
            open_.append((reservation, reservation.musd))
        elif open_:
            reservation, _ = open_.pop(which % len(open_))
            if what == "settle":
                spent += reservation.settle(usd)
            else:
                reservation.release()
        left = 5_000_000 - spent - sum(m for _, m in open_)
        assert book.remaining_usd("app") == max(0, left) / 1e6
