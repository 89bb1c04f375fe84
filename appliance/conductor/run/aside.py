"""Work on long bodies beside the event loop, so that no stream waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

SHORT = 128 << 10
"""Bytes or characters worked through at once: the slowest work here takes some 15 ms for them."""

P = ParamSpec("P")
T = TypeVar("T")


async def aside(size: int, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """`work(...)`, in a thread when what it works through is long."""
    if size <= SHORT:
        return work(*args, **named)
    return await asyncio.to_thread(work, *args, **named)
