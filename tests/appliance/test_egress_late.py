"""Egress listens before it can send: who asks meanwhile waits, and a library that fails ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conductor.core import Failure
from conductor.egress import late
from conductor.egress.late import LateProvider
from conductor.errors import StartError, WorkerError


class Answers:
    """A provider."""

    async def complete(self, worker: Any, body: Any) -> dict[str, Any]:
        return {"answered": body}

    def stream(self, worker: Any, body: Any) -> Any:
        raise NotImplementedError


async def test_who_asks_while_it_loads_is_answered_afterwards() -> None:
    provider, go = LateProvider(), asyncio.Event()

    async def load() -> Any:
        await go.wait()
        return Answers()

    async def ask() -> dict[str, Any]:
        await provider.wait()
        return await provider.complete(None, {"a": 1})  # type: ignore[arg-type]

    async with provider.loading(load):
        asking = asyncio.create_task(ask())
        await asyncio.sleep(0)
        assert not provider.loaded and not asking.done()
        go.set()
        assert await asking == {"answered": {"a": 1}}
        assert provider.loaded


async def test_a_library_that_cannot_be_held_ends_the_process_that_listens() -> None:
    async def load() -> Any:
        raise StartError("it would open a connection of its own")

    provider = LateProvider()
    with pytest.raises(StartError, match="connection of its own"):
        async with provider.loading(load):
            await asyncio.sleep(5)
    assert not provider.loaded


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "PATIENCE_S", 0.01)
    with pytest.raises(WorkerError) as refused:
        await LateProvider().wait()
    assert refused.value.failure is Failure.LOADING


async def test_leaving_while_it_loads_leaves_nothing_behind() -> None:
    async def load() -> Any:
        await asyncio.Event().wait()

    async with LateProvider().loading(load):
        await asyncio.sleep(0)
