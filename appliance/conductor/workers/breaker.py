"""The circuit breaker of one worker: a pure state machine, told the time.

    closed ──n failures in a row, or one that speaks for itself──▶ open
    open ──its time is over──▶ half-open: a single call may go as a probe
    half-open ──probe succeeds──▶ closed      ──probe fails──▶ open, twice as long, up to a cap

What the client caused never counts, or a client could close a worker to all others. Nor does the
total timer, whose end may be the client's own. A failure that comes in while the breaker is open
was under way before: it does not prolong it, so ten calls that die together count as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from conductor.core import Failure

State = Literal["closed", "open", "half_open"]
Entry = Literal["refused", "call", "probe"]

AT_ONCE = frozenset({Failure.REFUSED, Failure.EGRESS_DOWN, Failure.AUTH})
"""One is enough: the next call would fail the same way."""
IN_A_ROW = frozenset(
    {
        Failure.CONNECT_TIMEOUT,
        Failure.FIRST_BYTE_TIMEOUT,
        Failure.IDLE_TIMEOUT,
        Failure.CUT,
        Failure.MALFORMED,
        Failure.SERVER_ERROR,
    }
)
STATED = frozenset({Failure.RATE_LIMITED, Failure.LOADING, Failure.OVERLOADED})
"""The worker says so itself, and often for how long."""


@dataclass(frozen=True)
class BreakerLimits:
    """When a breaker opens, and for how long. Times in seconds."""

    failures: int = 3
    """That many in a row, of those that do not count at once."""
    first_open_s: float = 1.0
    max_open_s: float = 60.0
    sole_max_open_s: float = 2.0
    """For a worker with no other of its kind: short probes rather than a long silence."""
    max_stated_s: float = 300.0
    """How much of a worker's own Retry-After is believed."""
    probe_s: float = 30.0
    """A probe that has not reported by then no longer keeps others out."""


@dataclass(frozen=True)
class BreakerState:
    """For status, metrics and Retry-After. `reason`: what opened it, None when closed.
    `reopen_in_s`: until a call may go again, 0 when one may go now."""

    state: State
    reason: Failure | None
    reopen_in_s: float


class Breaker:
    """`now` is any clock that only rises, in seconds; always the same one."""

    def __init__(self, limits: BreakerLimits | None = None, *, sole: bool = False) -> None:
        self._limits = limits or BreakerLimits()
        self._sole = sole
        self._reason: Failure | None = None
        self._failures = 0
        self._openings = 0
        self._open_until = 0.0
        self._probe_until = 0.0

    def state(self, now: float) -> BreakerState:
        if self._reason is None:
            return BreakerState("closed", None, 0.0)
        if now < self._open_until:
            return BreakerState("open", self._reason, self._open_until - now)
        return BreakerState("half_open", self._reason, max(0.0, self._probe_until - now))

    def allows(self, now: float) -> bool:
        """Whether a call may go now. Takes nothing."""
        return self.state(now).reopen_in_s == 0.0

    def enter(self, now: float) -> Entry:
        """Ask for leave to call. In the half-open state one call gets it, as the probe, which must
        `leave` when it ends, however it ends."""
        if not self.allows(now):
            return "refused"
        if self._reason is None:
            return "call"
        self._probe_until = now + self._limits.probe_s
        return "probe"

    def leave(self) -> None:
        """The probe has ended. If it said nothing about the worker, the next call may probe."""
        self._probe_until = 0.0

    def succeed(self, now: float) -> None:
        """A call went well. While open, that is an old one, and says nothing of now."""
        if self.state(now).state != "open":
            self._reason = None
            self._failures = self._openings = 0

    def fail(self, failure: Failure, now: float, retry_after_s: float | None = None) -> None:
        """A call failed; `retry_after_s` is the worker's own statement."""
        state = self.state(now).state
        if failure in STATED:
            self._open(failure, now + self._stated_s(failure, retry_after_s))
        elif state != "open" and (failure in AT_ONCE or failure in IN_A_ROW):
            self._failures += 1
            enough = self._failures >= self._limits.failures
            if failure in AT_ONCE or enough or state == "half_open":
                self._open(failure, now + self._next_open_s())

    def _open(self, failure: Failure, until: float) -> None:
        self._reason = failure
        self._failures = 0
        self._open_until = max(self._open_until, until)
        self._probe_until = 0.0

    def _next_open_s(self) -> float:
        cap = self._limits.sole_max_open_s if self._sole else self._limits.max_open_s
        # Past 30 doublings every cap is reached; the bound keeps the power a small number.
        seconds = self._limits.first_open_s * 2.0 ** min(self._openings, 30)
        self._openings += 1
        return min(cap, seconds)

    def _stated_s(self, failure: Failure, retry_after_s: float | None) -> float:
        if retry_after_s is None:
            return self._limits.first_open_s
        # A vendor's rate limit holds however lonely it is; a loading model is worth asking often.
        short = self._sole and failure is not Failure.RATE_LIMITED
        cap = self._limits.sole_max_open_s if short else self._limits.max_stated_s
        return min(cap, max(retry_after_s, 0.0))
