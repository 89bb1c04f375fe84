"""Calls workers over HTTP: local ones on loopback or a Unix socket, remote ones through egress.

One attempt, in order: take a kept connection or dial; send exactly the call's bytes under an
allow-list of headers; wait for the head; give the reply; keep the connection if the answer was
read to its end, abort it otherwise.

Left out on purpose: choosing, retrying and failing over (`run/attempts.py`), breakers and queues
(`workers/pool.py`). The one retry here is of a kept connection that turned out to be dead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from conductor.core import Call, Failure, RemoteEndpoint, TcpEndpoint, UnixEndpoint, Worker
from conductor.errors import WorkerError
from conductor.workers import http1
from conductor.workers.address import Address
from conductor.workers.connection import Connection, ConnectionDied, Timers
from conductor.workers.headers import PERMIT, WORKER
from conductor.workers.reply import Exchange, HttpReply

MAX_REPLY_BYTES = 32 * 1024 * 1024


class HttpCaller:
    """Implements `core.Caller`. Holds no key and resolves no name."""

    def __init__(
        self, egress_socket: Path | None = None, *, max_reply_bytes: int = MAX_REPLY_BYTES
    ) -> None:
        """`egress_socket`: None in local-only mode, where every remote call is refused."""
        self._egress = None if egress_socket is None else UnixEndpoint(egress_socket)
        self._max_reply_bytes = max_reply_bytes
        self._addresses: dict[UnixEndpoint | TcpEndpoint, Address] = {}

    async def close(self) -> None:
        """Close what is idle. Calls that still run close their own connection."""
        for address in self._addresses.values():
            address.close()

    @asynccontextmanager
    async def call(self, worker: Worker, call: Call) -> AsyncIterator[HttpReply]:
        """Send one attempt; see `core.Caller`. Raises `errors.WorkerError`."""
        reply = await self._open(self._exchange(worker, call))
        try:
            yield reply
            await reply.settle()
        finally:
            reply.release()

    def _exchange(self, worker: Worker, call: Call) -> Exchange:
        endpoint = self._endpoint(worker)
        address = self._addresses.get(endpoint)
        if address is None:
            address = self._addresses[endpoint] = Address(endpoint)
        target = f"{endpoint.base_path.rstrip('/')}/chat/completions"
        return Exchange(
            address=address,
            request=http1.post(target, address.host, _headers(worker, call), call.body),
            limits=worker.limits,
            timers=Timers(min(call.total_s, worker.limits.total_s)),
            egress=worker.remote,
            max_bytes=self._max_reply_bytes,
        )

    def _endpoint(self, worker: Worker) -> UnixEndpoint | TcpEndpoint:
        """Where to connect. Clearance went by the destination's kind: were the endpoint to
        disagree with it, nothing is sent."""
        if isinstance(worker.endpoint, RemoteEndpoint) != worker.remote:
            raise WorkerError(Failure.REFUSED, "destination and endpoint disagree")
        if not isinstance(worker.endpoint, RemoteEndpoint):
            return worker.endpoint
        if self._egress is None:
            raise WorkerError(Failure.EGRESS_DOWN, "local-only mode")
        return self._egress

    async def _open(self, exchange: Exchange) -> HttpReply:
        """On a kept connection first. One that died before any byte of an answer had been closed
        by the worker while it was idle: the request then goes out once more, on a fresh one."""
        kept = exchange.address.take()
        if kept is not None:
            try:
                return await _begin(exchange, kept)
            except ConnectionDied:
                pass
        try:
            return await _begin(exchange, await _dial(exchange))
        except ConnectionDied:
            raise WorkerError(Failure.CUT, "closed before the answer") from None


async def _dial(exchange: Exchange) -> Connection:
    timers, limits = exchange.timers, exchange.limits
    try:
        return await timers.wait(
            exchange.address.dial(), timers.at(limits.connect_s), Failure.CONNECT_TIMEOUT
        )
    except WorkerError as error:
        if exchange.egress and error.failure in (Failure.REFUSED, Failure.CONNECT_TIMEOUT):
            raise WorkerError(Failure.EGRESS_DOWN, error.detail) from None
        raise


async def _begin(exchange: Exchange, connection: Connection) -> HttpReply:
    """Send, and wait for a head with status 200. The first-byte timer starts here."""
    first_byte_at = exchange.timers.at(exchange.limits.first_byte_s)
    cycle = http1.Cycle()
    try:
        connection.send(*cycle.send(exchange.request))
        head = await exchange.timers.wait(
            connection.head(cycle), first_byte_at, Failure.FIRST_BYTE_TIMEOUT
        )
        reply = HttpReply(exchange, connection, cycle, head, first_byte_at)
    except http1.BadHttp as error:
        connection.abort()
        raise WorkerError(Failure.MALFORMED, str(error)) from None
    except BaseException:
        connection.abort()
        raise
    if head.status == 200:
        return reply
    try:
        raise await reply.refused()
    finally:
        reply.release()


def _headers(worker: Worker, call: Call) -> list[tuple[str, str]]:
    """All that goes along with a body: an allow-list, by kind of worker. Raises `WorkerError`."""
    accept = "text/event-stream" if call.stream else "application/json"
    headers = [("Content-Type", "application/json"), ("Accept", accept)]
    if not worker.remote:
        return [*headers, ("X-Request-Id", call.request_id)]
    if call.permit is None:
        raise WorkerError(Failure.PERMIT, "no permit")
    return [*headers, (PERMIT, call.permit), (WORKER, worker.id)]
