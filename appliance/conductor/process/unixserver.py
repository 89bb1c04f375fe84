"""An application behind a Unix socket: what the planner and the egress process have in common."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
)
from functools import partial
from pathlib import Path

import structlog
from aiohttp import web

from conductor.process.manager import inherited, managed
from conductor.process.probe import answers
from conductor.process.stopsignal import stop_signal
from conductor.process.unixsocket import BACKLOG, listening

log = structlog.get_logger()

Where = Path | socket.socket
"""A path to listen at, or the listener that a service manager has handed over."""


def handed_over(name: str, otherwise: Path) -> Where:
    """The one listener that the manager calls so, else the path. Raises `StartError`."""
    found = inherited().get(name, [])
    return found[0] if found else otherwise


@asynccontextmanager
async def serving_app(where: Where, app: web.Application, *, drain_s: float) -> AsyncIterator[None]:
    """Serve `app` there while the context is open; then requests under way get `drain_s`.

    A caller that leaves cancels its request. Raises `StartError`.
    """
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=drain_s
    )
    with _listener(where) as listener:
        await runner.setup()
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(runner.server, sock=listener, backlog=BACKLOG)
        try:
            yield
        finally:
            server.close()
            await runner.cleanup()


def _listener(where: Where) -> AbstractContextManager[socket.socket]:
    return listening(where) if isinstance(where, Path) else closing(where)


async def serve_until_stopped(
    service: AbstractAsyncContextManager[None], where: Where, **facts: str
) -> None:
    """Keep `service`, which listens there, open until SIGTERM or SIGINT; tell the manager that it
    is ready, and that it answers. `facts` about it are logged."""
    path = where if isinstance(where, Path) else Path(where.getsockname())
    with stop_signal() as stop:
        async with service, managed(partial(answers, path, "/healthz")):
            log.info("listening", **facts)
            await stop.wait()
            log.info("stopping")
