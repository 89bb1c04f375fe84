"""What a service manager is told, and what it hands over: systemd's notify and listener protocols.

Thirty lines each of two stable interfaces, sd_notify(3) and sd_listen_fds(3), without a library:
`READY=1` only once everything stands, `STATUS=` for people, `WATCHDOG=1` from a task on the event
loop after a check from end to end, so that a stuck loop is caught as well as a dead process.

Without a manager (`$NOTIFY_SOCKET`, `$LISTEN_FDS` unset) nothing happens.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from conductor.errors import StartError

FIRST_FD = 3
"""Where inherited listeners begin."""
LEASH = "CONDUCTOR_WATCHDOG_S"
"""Environment variable: a watchdog's patience, in seconds, once the service is ready. Until then it
is the unit's `WatchdogSec=`, in which a service that loads for long has its loading."""
_CHECKS_A_PERIOD = 3
"""A check that fails once may succeed twice more before the manager's patience ends."""

log = structlog.get_logger()


def notify(**fields: str | int) -> bool:
    """Tell the manager, as in `notify(READY=1, STATUS="policy 3")`; whether it was told.

    A line break in a value would be a field of its own: it becomes a space.
    """
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where:
        return False
    address = f"\0{where[1:]}" if where.startswith("@") else where
    text = "\n".join(f"{name}={_one_line(value)}" for name, value in fields.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(text.encode(), address)
    except OSError as error:
        log.warning("manager_not_told", error=error.strerror)
        return False
    return True


def _one_line(value: str | int) -> str:
    return " ".join(str(value).split("\n"))


def inherited() -> dict[str, list[socket.socket]]:
    """The listeners that the manager has opened, by their `FileDescriptorName=`, non-blocking.

    Call it once: the variables that tell of them are removed, so that no child takes them for its
    own. Raises `StartError` for anything that is no listening stream socket.
    """
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    count, owner = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")
    if owner != str(os.getpid()) or not count.isdigit():
        return {}
    found: dict[str, list[socket.socket]] = {}
    for place in range(int(count)):
        name = names[place] if place < len(names) and names[place] else "unknown"
        found.setdefault(name, []).append(_listener(FIRST_FD + place, name))
    return found


def _listener(descriptor: int, name: str) -> socket.socket:
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError:
        raise StartError(f"the listener {name} that was handed over is no socket") from None
    os.set_inheritable(descriptor, False)
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise StartError(f"the socket {name} that was handed over does not listen")
    listener.setblocking(False)
    return listener


@asynccontextmanager
async def managed(check: Callable[[], Awaitable[bool]], status: str = "") -> AsyncIterator[None]:
    """Be ready for as long as the context lasts, and keep the watchdog fed as long as `check`
    says that the service answers. `status` is for people."""
    notify(READY=1, STATUS=status or "ready")
    feeding = asyncio.create_task(_feed(check, period_s)) if (period_s := _leash_s()) else None
    try:
        yield
    finally:
        notify(STOPPING=1, STATUS="stopping")
        if feeding is not None:
            feeding.cancel()
            with suppress(asyncio.CancelledError):
                await feeding


async def _feed(check: Callable[[], Awaitable[bool]], period_s: float) -> None:
    while True:
        if await check():
            notify(WATCHDOG=1)
        else:
            log.error("watchdog_not_fed", do="a further failure, and the service is started anew")
        await asyncio.sleep(period_s / _CHECKS_A_PERIOD)


def _leash_s() -> float:
    """`_period_s`, or what is to count from now on; the manager is told."""
    period_s, text = _period_s(), os.environ.get(LEASH, "")
    if not period_s or not text.isdigit() or not 0 < int(text) < period_s:
        return period_s
    notify(WATCHDOG=1, WATCHDOG_USEC=int(text) * 1_000_000)
    return float(text)


def _period_s() -> float:
    """How long the manager waits for a sign of life; 0 when it does not."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdigit() else 0.0
