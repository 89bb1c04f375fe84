"""Waiting for what should come soon, so that no test fails because the machine is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SOON_S = 60.0
"""For whatever only has to come: a limit that no machine at work needs. It costs nothing."""

_BEAT_S = 0.01


async def until(condition: Callable[[], object], limit_s: float = SOON_S) -> None:
    """Wait until `condition()` is true; fails the test when it is not within `limit_s`.

    The limit is counted in beats of the loop. For what happens in this process it can so be as
    strict as a promise of the product: a loop that gets no processor loses none of its time.
    """
    for _ in range(round(limit_s / _BEAT_S)):
        if condition():
            return
        await asyncio.sleep(_BEAT_S)
    assert condition(), "what the test waits for did not happen"


def until_now(condition: Callable[[], object], limit_s: float = SOON_S) -> None:
    """The same for a test without a loop, by the clock."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "what the test waits for did not happen"
        time.sleep(_BEAT_S)
