"""`serve`: open the listeners once everything behind them stands; drain them on a signal.

On SIGTERM or SIGINT readiness fails first, new requests are told to go elsewhere, running ones get
`drain_s`, then an in-band error. SIGHUP never ends the process.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from functools import partial

import structlog
from aiohttp import web

from conductor.api.admin import administered
from conductor.api.app import Handlers, admin_app, api_app
from conductor.api.approvals import ApprovalsHandler
from conductor.api.bodies import BodyGate
from conductor.api.chat import ChatHandler
from conductor.api.explain import ExplainHandler
from conductor.api.feedback import FeedbackHandler
from conductor.api.gap import gap_watch
from conductor.api.health import HealthHandler
from conductor.api.keys import KeyRing
from conductor.api.middleware import Door
from conductor.api.models import ModelsHandler
from conductor.api.policyexplain import explain_request
from conductor.api.protocol import Runner
from conductor.config import Site
from conductor.core import Body
from conductor.process.manager import managed
from conductor.process.probe import answers
from conductor.process.stopsignal import stop_signal
from conductor.process.tcpsocket import bound
from conductor.process.unixsocket import listening
from conductor.run.services import Services, services
from conductor.secretrefs import resolve

BACKLOG = 2048

LAST_WORD_S = 2.0
"""For ended requests to tell their clients so, when the time to drain is over."""

STALLED_READER_S = 120.0
"""A client that takes no byte of its answer for so long is cut off by the kernel: neither the
event loop nor a timer of a request notices that somebody just does not read."""

log = structlog.get_logger()

Listeners = Mapping[str, list[socket.socket]]


@dataclass(frozen=True)
class Server:
    """Open listeners and what is behind them."""

    parts: Services
    door: Door
    port: int
    admin_port: int

    async def drain(self, limit_s: float) -> None:
        """Take no new requests; wait until none is under way, at most `limit_s`. What then still
        runs is told so and ended."""
        self.door.draining = True
        log.info("draining", limit_s=limit_s)
        if not await self._emptied(limit_s):
            log.warning("drain_over", ended=self.door.inside)
            self.door.clear()
            await self._emptied(LAST_WORD_S)

    async def _emptied(self, limit_s: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.door.empty.wait(), limit_s)
        return not self.door.inside


async def serve(site: Site, degraded: str = "", listeners: Listeners | None = None) -> None:
    """Serve until a signal comes, then drain. `degraded` as in `services`; `listeners` are those
    that a service manager has handed over: `api`, `metrics`, `admin`."""
    handed = listeners or {}
    paths = site.appliance.paths
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGHUP, lambda: log.warning("no_reload", do="conductor policy apply, or a restart")
    )
    with stop_signal() as stop:
        async with serving(site, degraded, handed) as server:
            gap = "air-gapped" if site.declared.air_gapped else site.appliance.mode
            status = f"mode {gap}, policy {site.policy.revision}"
            async with managed(partial(answers, paths.admin_socket, "/healthz"), status):
                await stop.wait()
            await server.drain(site.appliance.api.drain_s)


@asynccontextmanager
async def serving(
    site: Site, degraded: str = "", listeners: Listeners | None = None
) -> AsyncIterator[Server]:
    """Enter with both ports open. Leaving cancels what still runs: `drain` first."""
    api, handed = site.appliance.api, listeners or {}
    door = Door()
    ring = KeyRing(site.appliance.keys, resolve)
    async with services(site, degraded) as parts, AsyncExitStack() as stack:
        admin = Runner(admin_app(_health(parts, door)))
        # handler_cancellation: a client that leaves is not noticed without it (off by default).
        runner = Runner(_api(parts, ring, door), handler_cancellation=True, shutdown_timeout=1.0)
        for one in (admin, runner):
            await one.setup()
            stack.push_async_callback(one.cleanup)
        await stack.enter_async_context(_administered(parts, handed))
        admin_port = await _listen(admin, handed.get("metrics", []), api.admin_host, api.admin_port)
        port = await _listen(runner, handed.get("api", []), api.host, api.port)
        if api.unix_socket is not None:
            listener = stack.enter_context(listening(api.unix_socket))
            await web.SockSite(runner, listener, backlog=BACKLOG).start()
        log.info("listening", host=api.host, port=port, admin_port=admin_port)
        yield Server(parts, door, port, admin_port)


def _api(parts: Services, ring: KeyRing, door: Door) -> web.Application:
    appliance = parts.site.appliance
    gate = BodyGate(appliance.api.max_body_bytes, appliance.api.max_in_flight_body_bytes)
    chat = ChatHandler(
        conduct=parts.conduct,
        gate=gate,
        door=door,
        hold_s=appliance.api.hold_s,
    )
    handlers = Handlers(
        chat=chat,
        explain=ExplainHandler(parts.intake, gate),
        feedback=FeedbackHandler(parts.feedback, gate),
        models=ModelsHandler(parts.pool, int(time.time())),
        health=_health(parts, door),
    )
    app = api_app(handlers, ring, parts.metrics, door)
    app.middlewares.append(gap_watch(parts.attester))
    return app


def _administered(parts: Services, handed: Listeners) -> AbstractAsyncContextManager[None]:
    """The socket for `conductor policy` and `conductor approvals`."""

    async def explain(raw: bytes, key: str | None, declared: str | None) -> Body:
        return await explain_request(parts.site, parts.scanner, raw, key, declared)

    waiting = ApprovalsHandler(parts.approvals, parts.active, parts.audit)
    where = next(iter(handed.get("admin", [])), parts.site.appliance.paths.admin_socket)
    return administered(where, parts.desk, explain, waiting)


def _health(parts: Services, door: Door) -> HealthHandler:
    def status() -> Body:
        body = parts.status()
        if door.draining:
            return {**body, "ready": False, "reasons": ["stopping", *body["reasons"]]}
        return body

    return HealthHandler(status, parts.metrics)


async def _listen(runner: web.AppRunner, handed: list[socket.socket], host: str, port: int) -> int:
    """Listen on what was handed over, else at an address of our own; returns the port of the
    first, chosen by the kernel when 0 was asked for. A Unix socket has none: 0."""
    ports = []
    for listener in handed or [bound(host, port)]:
        if listener.family != socket.AF_UNIX:
            stalled_ms = round(STALLED_READER_S * 1000)  # accepted connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_ms)
            ports.append(int(listener.getsockname()[1]))
        await web.SockSite(runner, listener, backlog=BACKLOG).start()
    return ports[0] if ports else 0
