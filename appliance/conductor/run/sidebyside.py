"""Waiting for tasks that run side by side, of which a failing one ends the others.

In place of `asyncio.TaskGroup`: up to Python 3.12 that leaves whoever waited marked as cancelled
once a task has failed. Whoever goes on after the failure, as a request does for
which an answer already stands, could then not tell its own timer from a client that left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

Task = asyncio.Task[None]


async def all_of(tasks: Collection[Task]) -> None:
    """Wait until all have ended. Raises the first error, of several at once that of the first task;
    the others are cancelled and have ended by then, as they have when the waiting is cancelled."""
    if not tasks:
        return
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        errors = [task.exception() for task in tasks if task in done and not task.cancelled()]
    finally:
        await _end(tasks)
    for error in errors:
        if error is not None:
            raise error


async def _end(tasks: Collection[Task]) -> None:
    """Cancel what runs and see it end, however often the waiting itself is cancelled."""
    for task in tasks:
        task.cancel()
    again: asyncio.CancelledError | None = None
    while running := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            again = error
    for task in tasks:
        with suppress(asyncio.CancelledError):
            task.exception()  # seen, or else the loop reports it as lost
    if again is not None:
        raise again
