"""One connection to a worker: what has come, what is still unsent, and how it ended.

A protocol of our own in place of asyncio's streams, because a kept connection must be seen to be
clean, and because what a worker sent before it broke off must still be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar, cast

from conductor.core import Failure
from conductor.errors import WorkerError
from conductor.workers.http1 import MAX_HEAD_BYTES, BadHttp, Cycle, Head

T = TypeVar("T")

_READ_BYTES = 16 * 1024
"""Given out per turn of the loop: this much in chunks of one byte takes 10 ms to take apart."""
_PAUSE_BYTES = 256 * 1024
_JOIN_BYTES = 64 * 1024


class ConnectionDied(Exception):
    """The peer closed before a single byte of its answer."""


class Timers:
    """The clock of one call: a total, and shorter limits for single waits. In seconds."""

    def __init__(self, total_s: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._total_at = self._clock() + total_s

    def at(self, limit_s: float) -> float:
        """The moment `limit_s` from now, on the loop's clock."""
        return self._clock() + limit_s

    async def wait(self, awaitable: Awaitable[T], at: float, failure: Failure) -> T:
        """Raises `WorkerError(failure)` at `at`, or `TOTAL_TIMEOUT` if the total ends before."""
        try:
            async with asyncio.timeout_at(min(at, self._total_at)):
                return await awaitable
        except TimeoutError:
            total = self._total_at <= at
            raise WorkerError(Failure.TOTAL_TIMEOUT if total else failure) from None


class Connection(asyncio.Protocol):
    """An open socket to a worker, read by one task at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._ended = False
        self._broken = False
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def clean(self) -> bool:
        """Whether another request may follow: all is sent, nothing unasked for has come."""
        transport = self._open()
        return not (
            self._ended
            or self._received
            or transport.is_closing()
            or transport.get_write_buffer_size()
        )

    def send(self, head: bytes, body: bytes) -> None:
        """Hand a request to the kernel, and what it does not take to the loop. Reading begins at
        once, since a worker may refuse a long body before it has read all of it."""
        if len(body) <= _JOIN_BYTES:
            self._open().write(head + body)
        else:
            self._open().write(head)
            self._open().write(body)

    async def head(self, cycle: Cycle) -> Head:
        """The response head; interim ones (1xx) are skipped. Raises `ConnectionDied`, `BadHttp`."""
        while True:
            head = cycle.head(await self._head_bytes())
            if head is not None:
                return head

    async def read(self) -> bytes:
        """Some bytes; none when the peer has closed. Raises `OSError` when it broke off."""
        while not self._received:
            if self._broken:
                raise ConnectionResetError
            if self._ended:
                return b""
            await self._more()
        data = bytes(self._received[:_READ_BYTES])
        del self._received[:_READ_BYTES]
        if self._received:
            await asyncio.sleep(0)
        elif self._paused and not self._ended:
            self._paused = False
            self._open().resume_reading()
        return data

    def abort(self) -> None:
        """Close at once and drop what is unsent. May be called again."""
        self._open().abort()

    async def _head_bytes(self) -> bytes:
        searched = 0
        while (end := self._received.find(b"\r\n\r\n", max(0, searched - 3))) < 0:
            searched = len(self._received)
            if searched > MAX_HEAD_BYTES:
                raise BadHttp("a response head without an end")
            if self._ended and searched:
                raise BadHttp("a response head cut short")
            if self._ended:
                raise ConnectionDied
            await self._more()
        head = bytes(self._received[: end + 4])
        del self._received[: end + 4]
        return head

    async def _more(self) -> None:
        """Wait for bytes, or the end."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _open(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected yet"
        return self._transport

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- called by the loop --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _PAUSE_BYTES and not self._paused:
            self._paused = True
            self._open().pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broken = exc is not None and not self._ended
        self._ended = True
        self._wake()
