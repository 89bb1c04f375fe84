"""An application behind a Unix socket: what the planner and the egress process have in common."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import structlog
from aiohttp import web

from conductor.process.stopsignal import stop_signal
from conductor.process.unixsocket import BACKLOG, listening

log = structlog.get_logger()


@asynccontextmanager
async def serving_app(socket: Path, app: web.Application, *, drain_s: float) -> AsyncIterator[None]:
    """Serve `app` on `socket` while the context is open; then requests under way get `drain_s`.

    A caller that leaves cancels its request. Raises `StartError`.
    """
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=drain_s
    )
    with listening(socket) as listener:
        await runner.setup()
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(runner.server, sock=listener, backlog=BACKLOG)
        try:
            yield
        finally:
            server.close()
            await runner.cleanup()


async def serve_until_stopped(service: AbstractAsyncContextManager[None], **facts: str) -> None:
    """Keep `service` open until SIGTERM or SIGINT. `facts` about it are logged."""
    with stop_signal() as stop:
        async with service:
            log.info("listening", **facts)
            await stop.wait()
            log.info("stopping")
