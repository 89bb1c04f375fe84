"""A provider that is still being loaded: the vendors' library takes seconds of a processor.

So egress listens before it can send. What asks it meanwhile waits, and only then are its permit and
its policy looked at: nothing is sent by a library that has not proved that it can be held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from conductor.core import Body, Failure, Worker
from conductor.egress.providers import Provider
from conductor.errors import WorkerError

PATIENCE_S = 20.0
"""How long a request waits. Well within what `serve` gives a first byte."""


class LateProvider:
    """A `Provider`, once `wait` has returned."""

    def __init__(self) -> None:
        self._there = asyncio.Event()
        self._provider: Provider | None = None

    @property
    def loaded(self) -> bool:
        """Whether it can send."""
        return self._provider is not None

    async def wait(self) -> None:
        """Until it can. Raises `WorkerError(LOADING)` when that takes too long."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._there.wait()
        except TimeoutError:
            raise WorkerError(Failure.LOADING, "the vendors' library loads") from None

    async def complete(self, worker: Worker, body: Body) -> Body:
        """See `Provider`."""
        return await self._own().complete(worker, body)

    def stream(
        self, worker: Worker, body: Body
    ) -> AbstractAsyncContextManager[AsyncIterator[Body]]:
        """See `Provider`."""
        return self._own().stream(worker, body)

    @asynccontextmanager
    async def loading(self, load: Callable[[], Awaitable[Provider]]) -> AsyncIterator[None]:
        """Load while the context is open. What `load` raises ends the context, and comes out of it:
        a process that cannot send does not go on listening."""
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._load(load))
                yield
                task.cancel()
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _load(self, load: Callable[[], Awaitable[Provider]]) -> None:
        self._provider = await load()
        self._there.set()

    def _own(self) -> Provider:
        assert self._provider is not None, "nobody waited for it"
        return self._provider
