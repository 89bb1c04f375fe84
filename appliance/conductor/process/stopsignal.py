"""The end of a process, as its event loop hears of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signal() -> Iterator[asyncio.Event]:
    """An event that SIGTERM or SIGINT sets, for as long as the context lasts."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
