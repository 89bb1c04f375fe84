"""Money per key and day (UTC): reserve before the work, settle after it, release on every exit.

Amounts are integer micro-USD inside, so that sums are exact; in and out they are USD. Reserving is
one step without an await, hence atomic for everything that runs on the loop. There is no second
store: after a restart the audit log of the day says what was spent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from conductor.errors import BudgetExhausted


@dataclass
class _Account:
    budget_musd: int | None
    spent_musd: int = 0
    reserved_musd: int = 0


class Reservation:
    """Money put aside for one request. Leaving the context gives back what was not settled."""

    def __init__(self, ledger: Ledger, account: _Account, musd: int) -> None:
        self._ledger = ledger
        self._account = account
        self._musd = musd
        self._open = True

    @property
    def musd(self) -> int:
        """The reserved amount, for the audit record's `reserved_musd`."""
        return self._musd

    def settle(self, usd: float) -> int:
        """Book what it really cost, even beyond the reservation; returns it in micro-USD, for the
        audit record's `cost_musd`. Once only: a second call raises `RuntimeError`."""
        if not self._open:
            raise RuntimeError("this reservation is already settled or released")
        cost = to_musd(usd)
        self.release()
        self._ledger._book(self._account, cost)
        return cost

    def release(self) -> None:
        """Give back what is still reserved. Harmless when nothing is."""
        if self._open:
            self._open = False
            self._account.reserved_musd -= self._musd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Ledger:
    """The accounts of all keys. `budgets` gives USD per UTC day and key; None has no limit.

    `clock` gives Unix seconds.
    """

    def __init__(
        self, budgets: Mapping[str, float | None], clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._day = self.today
        self._accounts = {
            key: _Account(None if usd is None else to_musd(usd)) for key, usd in budgets.items()
        }

    @property
    def today(self) -> str:
        """The current UTC day, `2026-08-01`: where `restore` wants its records from."""
        return self._now().strftime("%Y-%m-%d")

    def reserve(self, key: str, usd: float) -> Reservation:
        """Put `usd` aside until the reservation is settled or left.

        Raises:
            BudgetExhausted: spent, reserved and this together are more than the day's budget.
            KeyError: no such key.
        """
        self._roll()
        account, musd = self._accounts[key], to_musd(usd)
        taken = account.spent_musd + account.reserved_musd
        if account.budget_musd is not None and taken + musd > account.budget_musd:
            raise BudgetExhausted(
                f"The daily budget of key '{key}' does not cover this request. It resets at "
                f"{self._reset_time()}; an administrator can raise it."
            )
        account.reserved_musd += musd
        return Reservation(self, account, musd)

    def spent_usd(self, key: str) -> float:
        """Settled today."""
        self._roll()
        return self._accounts[key].spent_musd / 1e6

    def remaining_usd(self, key: str) -> float | None:
        """Left today after what is spent and reserved, at least 0; None has no limit."""
        self._roll()
        account = self._accounts[key]
        if account.budget_musd is None:
            return None
        return max(0, account.budget_musd - account.spent_musd - account.reserved_musd) / 1e6

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Book what today's audit records tell: `outcome` says what a request cost; a `decision`
        without outcome, left by a crash, counts as its reservation: it may have been spent. The
        two belong together by their `decision_id`."""
        self._roll()
        unfinished: dict[str, tuple[str, int]] = {}
        for record in records:
            if not str(record.get("ts", "")).startswith(self._day):
                continue
            decision, key = str(record.get("decision_id")), str(record.get("key"))
            if record.get("event") == "decision":
                unfinished[decision] = (key, int(record.get("reserved_musd") or 0))
            elif record.get("event") == "outcome":
                unfinished.pop(decision, None)
                self._restore_one(key, int(record.get("cost_musd") or 0))
        for key, musd in unfinished.values():
            self._restore_one(key, musd)

    def _restore_one(self, key: str, musd: int) -> None:
        if key in self._accounts:  # a key that is no longer configured cannot spend either
            self._accounts[key].spent_musd += musd

    def _book(self, account: _Account, musd: int) -> None:
        self._roll()
        account.spent_musd += musd

    def _roll(self) -> None:
        """Start a new day. Open reservations stay: they will be settled on the new one."""
        today = self.today
        # Only forwards: a clock set back must not open yesterday's budget again.
        if today > self._day:
            self._day = today
            for account in self._accounts.values():
                account.spent_musd = 0

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _reset_time(self) -> str:
        midnight = datetime.fromisoformat(self._day) + timedelta(days=1)
        return midnight.strftime("%Y-%m-%dT%H:%M:%SZ")


def to_musd(usd: float) -> int:
    """USD as whole micro-USD, rounded up: what is billed is never less than what was used.

    Raises `ValueError` for a negative or endless amount.
    """
    if not math.isfinite(usd) or usd < 0:
        raise ValueError("an amount of money must be finite and not negative")
    # The slack keeps binary fractions (0.1 + 0.2) from adding a micro-USD.
    return math.ceil(usd * 1e6 - 1e-6)
