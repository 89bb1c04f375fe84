"""Reading request bodies: bounded in size, in time, and in memory over all requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from conductor.chat.request import ChatRequest, parse_chat
from conductor.errors import BadRequest, Overloaded, TooLarge

READ_S = 120.0
"""A client that needs longer than this to send its body is holding a place for nothing."""

_SHORT_BYTES = 256 << 10
"""Parsing takes 5 ms a MiB."""


async def parsed(raw: bytes) -> ChatRequest:
    """`parse_chat`, of a long body in a thread: whoever else is on the loop then waits for one pass
    over it at a time, not for all of them. Raises `BadRequest`."""
    if len(raw) <= _SHORT_BYTES:
        return parse_chat(raw)
    return await asyncio.to_thread(parse_chat, raw)


@dataclass
class _Room:
    """What one body takes up, in bytes."""

    size: int = 0


class BodyGate:
    """Admits bodies while those being handled add up to at most `max_total_bytes`."""

    def __init__(self, max_body_bytes: int, max_total_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._max_total = max(max_total_bytes, max_body_bytes)
        self._held = 0

    @asynccontextmanager
    async def body(self, request: web.Request) -> AsyncIterator[bytes]:
        """The raw body; its room is held until the context is left.

        Raises `TooLarge`, `Overloaded` when there is no room, `BadRequest` for a stalled sender.
        """
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise BadRequest("The request body is compressed: send it as it is.")
        declared = request.content_length
        if declared is not None and declared > self.max_body_bytes:
            raise self._too_large()
        if self._held + (declared or 0) > self._max_total:
            raise _no_room()
        room = _Room()
        try:
            yield await self._read(request, room)
        finally:
            self._held -= room.size

    async def _read(self, request: web.Request, room: _Room) -> bytes:
        """The body, with room held for what has come. Not for what was announced: a client that
        announces much and sends nothing would shut all others out."""
        body = bytearray()
        try:
            async with asyncio.timeout(READ_S):
                async for piece in request.content.iter_any():
                    if len(body) + len(piece) > self.max_body_bytes:
                        raise self._too_large()
                    if self._held + len(piece) > self._max_total:
                        raise _no_room()
                    self._held += len(piece)
                    room.size += len(piece)
                    body += piece
                return bytes(body)
        except TimeoutError:
            raise BadRequest(f"The request body did not arrive within {READ_S:g} s.") from None
        except (web.RequestPayloadError, web.PayloadAccessError, HttpProcessingError):
            raise BadRequest("The request body is not framed as HTTP/1.1 asks for.") from None

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"The request body is larger than {self.max_body_bytes} bytes, this appliance's limit "
            "(api.max_body_bytes)."
        )


def _no_room() -> Overloaded:
    return Overloaded("Too much data is being handled. Try again.", retry_after_s=1)
