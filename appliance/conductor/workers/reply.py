"""Reading one answer off its connection: within the timers, within its size, to its true end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from conductor.core import Body, Failure, WorkerLimits
from conductor.errors import WorkerError
from conductor.workers import http1
from conductor.workers.address import Address
from conductor.workers.answers import StreamCheck, completion
from conductor.workers.connection import Connection, Timers
from conductor.workers.failures import refusal
from conductor.workers.sse import DONE, EventDecoder, EventTooLarge

_MAX_ERROR_BYTES = 64 * 1024
_SETTLE_S = 0.02
"""The end of a chunked body follows `[DONE]` in a write of its own; waiting for it a moment lets
the connection be kept."""


@dataclass(frozen=True)
class Exchange:
    """What one attempt needs to know at every turn. `egress`: the egress process answers."""

    address: Address
    request: http1.Request
    limits: WorkerLimits
    timers: Timers
    egress: bool
    max_bytes: int


class HttpReply:
    """An answer whose head has come; implements `core.Reply`."""

    def __init__(
        self,
        exchange: Exchange,
        connection: Connection,
        cycle: http1.Cycle,
        head: http1.Head,
        first_byte_at: float,
    ) -> None:
        self._exchange = exchange
        self._connection = connection
        self._cycle = cycle
        self._head = head
        self._first_byte_at: float | None = first_byte_at
        self._complete = False

    async def json(self) -> Body:
        """The whole plain answer. Raises `WorkerError`."""
        data = await self._whole(self._exchange.max_bytes)
        return completion(data, egress=self._exchange.egress)

    async def events(self) -> AsyncGenerator[Body, None]:
        """The chunks of a streamed answer, as they come. Raises `WorkerError`."""
        if not self._head.headers.get("content-type", "").startswith("text/event-stream"):
            await self.json()  # an error, perhaps
            raise WorkerError(Failure.MALFORMED, "no event stream")
        check = StreamCheck(egress=self._exchange.egress)
        decoder = EventDecoder()
        try:
            while data := await self._read():
                for event in decoder.feed(data):
                    if event == DONE:
                        check.done()
                        self._complete = True
                        return
                    yield check.chunk(event)
        except EventTooLarge:
            raise WorkerError(Failure.MALFORMED, "event too large", began=check.began) from None
        except WorkerError as error:
            error.began |= check.began
            raise
        if not check.finished:
            raise check.cut()

    async def refused(self) -> WorkerError:
        """The error that a status other than 200 stands for."""
        try:
            body = await self._whole(_MAX_ERROR_BYTES)
        except WorkerError as error:
            if error.failure is Failure.TOTAL_TIMEOUT:
                return error
            body = b""  # its status alone must do
        return refusal(self._head.status, self._head.headers, body, egress=self._exchange.egress)

    async def settle(self) -> None:
        """After a complete stream: let the end of the body arrive."""
        if self._complete and self._cycle.keep_alive and not self._cycle.done:
            with contextlib.suppress(TimeoutError, WorkerError):
                async with asyncio.timeout(_SETTLE_S):
                    await self._read()

    def release(self) -> None:
        """Keep the connection if the answer was read to its end, abort the call otherwise."""
        if self._cycle.done and self._cycle.keep_alive:
            self._exchange.address.keep(self._connection)
        else:
            self._connection.abort()

    async def _whole(self, max_bytes: int) -> bytes:
        content = bytearray()
        while data := await self._read():
            content += data
            if len(content) > max_bytes:
                raise WorkerError(Failure.MALFORMED, "answer too large")
        return bytes(content)

    async def _read(self) -> bytes:
        """Some content, or none at the end of the body."""
        while not self._cycle.done:
            data = await self._received()
            if not data:
                if self._cycle.end():
                    break
                raise WorkerError(Failure.CUT, "closed within the answer")
            try:
                content = self._cycle.feed(data)
            except http1.BadHttp as error:
                raise WorkerError(Failure.MALFORMED, str(error)) from None
            if content:
                return content
        return b""

    async def _received(self) -> bytes:
        """Bytes off the wire. The first of the body are still awaited by the first-byte timer: a
        server may send its head before it has thought of a word."""
        timers = self._exchange.timers
        at, failure = self._first_byte_at, Failure.FIRST_BYTE_TIMEOUT
        if at is None:
            at, failure = timers.at(self._exchange.limits.idle_s), Failure.IDLE_TIMEOUT
        try:
            data = await timers.wait(self._connection.read(), at, failure)
        except OSError:
            raise WorkerError(Failure.CUT, "connection broken") from None
        self._first_byte_at = None
        return data
