"""Starting a process so that whoever stops half-way leaves none behind."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress
from typing import Any


async def spawn(*argv: str, **options: Any) -> Process:
    """`asyncio.create_subprocess_exec`, with the same options. Raises `OSError` as it does.

    Cancelled in the middle of a start, the loop kills the process, but tells nobody when it has
    ended. Here the start goes on to its end, the process is killed and waited for, and only then
    does the cancellation go on.
    """
    starting = asyncio.create_task(asyncio.create_subprocess_exec(*argv, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):  # it could not be started anyway
            await end(await starting)
        raise


async def end(process: Process) -> None:
    """Kill a process and wait for it."""
    kill(process)
    await process.wait()


def kill(process: Process) -> None:
    """Kill a process, which may have ended."""
    with suppress(ProcessLookupError):
        process.kill()
