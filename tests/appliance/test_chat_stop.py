"""Ending the task that keeps a stream alive, whatever happens in the same moment."""

from __future__ import annotations

import asyncio

import pytest

from conductor.api.chat import _stop


async def _forever() -> None:
    await asyncio.Event().wait()


async def _fails(error: Exception) -> None:
    raise error


async def test_it_has_ended_when_stop_returns() -> None:
    task = asyncio.create_task(_forever())
    await asyncio.sleep(0)
    await _stop(task)
    await _stop(task)
    assert task.cancelled()


async def test_a_client_that_was_gone_is_no_error_here() -> None:
    task = asyncio.create_task(_fails(ConnectionResetError()))
    await asyncio.sleep(0)
    await _stop(task)


async def test_any_other_fault_comes_out() -> None:
    task = asyncio.create_task(_fails(ZeroDivisionError()))
    await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError):
        await _stop(task)


@pytest.mark.parametrize("turns", range(4))
async def test_a_client_that_leaves_in_that_very_moment_is_not_overlooked(turns: int) -> None:
    went_on = asyncio.Event()

    async def stops() -> None:
        helper = asyncio.create_task(_forever())
        await asyncio.sleep(0)
        await _stop(helper)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        went_on.set()

    task = asyncio.create_task(stops())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and not went_on.is_set()
