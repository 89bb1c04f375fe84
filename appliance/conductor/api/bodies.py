"""Reading request bodies: bounded in size, in time, and in memory over all requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
        room = self.max_body_bytes if declared is None else declared
        if self._held + room > self._max_total:
            raise Overloaded("Too much data is being handled. Try again.", retry_after_s=1)
        self._held += room
        try:
            raw = await self._read(request)
            self._held -= room - len(raw)
            room = len(raw)
            yield raw
        finally:
            self._held -= room

    async def _read(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(READ_S):
                return await request.read()
        except TimeoutError:
            raise BadRequest(f"The request body did not arrive within {READ_S:g} s.") from None
        except web.HTTPRequestEntityTooLarge:
            raise self._too_large() from None
        except (web.RequestPayloadError, web.PayloadAccessError, HttpProcessingError):
            raise BadRequest("The request body is not framed as HTTP/1.1 asks for.") from None

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"The request body is larger than {self.max_body_bytes} bytes, this appliance's limit "
            "(api.max_body_bytes)."
        )
