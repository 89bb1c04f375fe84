"""A bounded number of calls at a time, and a bounded, fair queue for the rest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from conductor.core import Failure, WorkerLimits
from conductor.errors import WorkerError


class QueueFull(WorkerError):
    """No place in time at our own queue, which says nothing against the worker."""

    def __init__(self, detail: str, retry_after_s: float) -> None:
        super().__init__(Failure.OVERLOADED, detail, retry_after_s=retry_after_s)


_WEIGHT = 0.2
"""Of the newest call in the running mean of how long calls take."""


class Slots:
    """The places of one worker. First come, first served; a cancelled waiter frees its place."""

    def __init__(self, limits: WorkerLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._queue: deque[asyncio.Future[None]] = deque()
        self._mean_s = 1.0
        self.in_flight = 0

    @property
    def queued(self) -> int:
        return len(self._queue)

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """A place for as long as the context lasts. Raises `QueueFull`, also after a wait of
        `queue_wait_s`."""
        await self._acquire()
        started = self._clock()
        try:
            yield
        finally:
            self._mean_s += _WEIGHT * (self._clock() - started - self._mean_s)
            self._release()

    def wait_estimate_s(self) -> float:
        """How long until a newcomer would get a place, from how long calls have taken."""
        ahead = max(0, self.in_flight + self.queued + 1 - self._limits.max_in_flight)
        return self._mean_s * ahead / self._limits.max_in_flight

    async def _acquire(self) -> None:
        if self.in_flight < self._limits.max_in_flight:
            self.in_flight += 1
            return
        if self.queued >= self._limits.max_queued:
            raise self._overloaded("queue full")
        place = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            async with asyncio.timeout(self._limits.queue_wait_s):
                await place
        except TimeoutError:
            self._give_up(place)
            raise self._overloaded("waited too long in the queue") from None
        except BaseException:
            self._give_up(place)
            raise

    def _give_up(self, place: asyncio.Future[None]) -> None:
        """Leave the queue; a slot that was handed over in the same moment goes to the next."""
        if place.done() and not place.cancelled():
            self._release()
        elif place in self._queue:
            self._queue.remove(place)

    def _release(self) -> None:
        """Hand the slot to the first in the queue: `in_flight` then stays as it is. One that has
        been cancelled, and has not run since, may still stand there."""
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.in_flight -= 1

    def _overloaded(self, detail: str) -> QueueFull:
        return QueueFull(detail, max(1.0, self.wait_estimate_s()))
