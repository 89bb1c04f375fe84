"""The pool at run time: each worker with its breaker and its slots.

Left out on purpose: which worker to choose (`planner/`, `run/`), and who may see what (`policy/`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import structlog

from conductor.core import Failure, Worker
from conductor.errors import WorkerError
from conductor.workers.breaker import Breaker, BreakerLimits
from conductor.workers.slots import QueueFull, Slots

log = structlog.get_logger()


@dataclass(frozen=True)
class _Member:
    worker: Worker
    breaker: Breaker
    slots: Slots


class Pool:
    """All workers of a site, by id, in the order of the file."""

    def __init__(
        self,
        workers: Iterable[Worker],
        clock: Callable[[], float] = time.monotonic,
        breaker_limits: BreakerLimits | None = None,
    ) -> None:
        """`clock` gives seconds and only rises."""
        members = list(workers)
        kinds = [worker.destination.kind for worker in members]
        self._clock = clock
        self._members = {
            worker.id: _Member(
                worker,
                Breaker(breaker_limits, sole=kinds.count(worker.destination.kind) == 1),
                Slots(worker.limits, clock),
            )
            for worker in members
        }
        if len(self._members) != len(members):
            raise ValueError("two workers have the same id")
        self.workers = tuple(members)
        self.by_id: Mapping[str, Worker] = MappingProxyType({w.id: w for w in members})

    def routable(self, worker: Worker) -> bool:
        """Whether its breaker would let a call go now."""
        return self._members[worker.id].breaker.allows(self._clock())

    def reopen_in_s(self, worker: Worker) -> float:
        """Until its breaker lets a call go: 0 when it does now."""
        return self._members[worker.id].breaker.state(self._clock()).reopen_in_s

    @asynccontextmanager
    async def slot(self, worker: Worker) -> AsyncIterator[None]:
        """A place at a worker, for one attempt. Raises `WorkerError`: `OVERLOADED` (`QueueFull`)
        when there is none in time, `OPEN` when the breaker lets nothing pass."""
        member = self._members[worker.id]
        if not member.breaker.allows(self._clock()):
            raise self._open(member)
        async with member.slots.hold():
            entry = member.breaker.enter(self._clock())  # it may have opened during the wait
            if entry == "refused":
                raise self._open(member)
            try:
                yield
            finally:
                if entry == "probe":
                    member.breaker.leave()

    def report(self, worker: Worker, error: WorkerError | None) -> None:
        """How an attempt ended, within its `slot`; None when it went well. What the client ended
        is not reported; what `slot` itself raised may be, and counts for nothing."""
        breaker, now = self._members[worker.id].breaker, self._clock()
        was_closed = breaker.state(now).state == "closed"
        if error is None:
            breaker.succeed(now)
        elif not isinstance(error, QueueFull):
            breaker.fail(error.failure, now, error.retry_after_s)
        state = breaker.state(now)
        if was_closed and state.state != "closed":
            log.warning("worker_left_out", worker=worker.id, reason=str(state.reason))
        elif not was_closed and state.state == "closed":
            log.info("worker_back", worker=worker.id)

    def status(self) -> list[dict[str, Any]]:
        """One record a worker, for the status page and metrics. Holds no address."""
        return [self._status_of(member) for member in self._members.values()]

    def _open(self, member: _Member) -> WorkerError:
        state = member.breaker.state(self._clock())
        return WorkerError(
            Failure.OPEN, f"opened by {state.reason}", retry_after_s=state.reopen_in_s
        )

    def _status_of(self, member: _Member) -> dict[str, Any]:
        state = member.breaker.state(self._clock())
        return {
            "id": member.worker.id,
            "kind": member.worker.destination.kind,
            "destination": member.worker.destination.id,
            "routable": state.reopen_in_s == 0.0,
            "state": state.state,
            "reason": None if state.reason is None else str(state.reason),
            "reopen_in_s": round(state.reopen_in_s, 3),
            "in_flight": member.slots.in_flight,
            "max_in_flight": member.worker.limits.max_in_flight,
            "queued": member.slots.queued,
            "max_queued": member.worker.limits.max_queued,
        }
