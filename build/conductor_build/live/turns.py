"""A trainer in the planner's place: what the daemon asks is handed out, and waits for a plan."""

from __future__ import annotations

import asyncio
from typing import Any

from conductor.core import PlanRequest
from conductor.planner.engine import Planned


class Turns:
    """Stands where `serve` has its `PlannerClient`. One play, one question at a time."""

    def __init__(self) -> None:
        self._asked: asyncio.Future[PlanRequest] | None = None
        self._given: asyncio.Future[Planned] | None = None

    async def plan(self, request: PlanRequest) -> Planned:
        """Called by the daemon's rounds: ask for a plan, and wait for it."""
        if self._asked is None:
            raise AssertionError("somebody waits whenever a round may end")
        self._given = asyncio.get_running_loop().create_future()
        self._asked.set_result(request)
        return await self._given

    def give(self, planned: Planned) -> None:
        """Answer the question that was asked last."""
        if self._given is None:
            raise AssertionError("a plan was asked for")
        given, self._given = self._given, None
        given.set_result(planned)

    async def next_of(self, rounds: asyncio.Task[None]) -> PlanRequest | None:
        """What is asked next; None when `rounds` end without a further question. To be awaited
        before the rounds run on."""
        self._asked = asyncio.get_running_loop().create_future()
        either: list[asyncio.Future[Any]] = [rounds, self._asked]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return self._asked.result() if self._asked.done() else None
