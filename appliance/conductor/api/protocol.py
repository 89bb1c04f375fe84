"""The layer below the application: what aiohttp would answer by itself is put into our words.

Bytes that are no HTTP request never reach a middleware: aiohttp answers them in plain text that
quotes them, and logs them. An `Expect` header is judged before any middleware as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.web_protocol import _ErrInfo

from conductor.api.envelope import REQUEST_ID, begin, error_response
from conductor.errors import BadRequest, InternalError
from conductor.process.openfiles import most_clients

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

log = structlog.get_logger()


class Runner(web.AppRunner):
    """An `AppRunner` that answers with the error envelope whatever comes in.

    Bodies are not decompressed: a few kilobytes could become gigabytes. `bodies.py` refuses them.
    """

    def __init__(self, app: web.Application, **more: Any) -> None:
        super().__init__(app, access_log=None, auto_decompress=False, **more)

    async def _make_server(self) -> web.Server:
        plain = await super()._make_server()
        return _Server(
            partial(_handled, plain.request_handler),
            request_factory=plain.request_factory,
            handler_cancellation=plain.handler_cancellation,
            **plain._kwargs,
        )


class _Server(web.Server):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._most = most_clients()

    @property
    def full(self) -> bool:
        """Whether as many clients are connected as may be."""
        return len(self._connections) >= self._most

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hang up on a client too many, who need not have a key to take up a file."""
        assert isinstance(self._manager, _Server)
        if self._manager.full:
            cast(asyncio.Transport, transport).abort()
        else:
            super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Have a request notice that the framing of its body is broken: aiohttp queues the error
        behind it, where it waits for the rest of the body."""
        super().data_received(data)
        request = self._current_request
        if request is None or not self._messages or request.content.is_eof():
            return
        if isinstance(self._messages[-1][0], _ErrInfo):
            self._messages.clear()
            request.content.set_exception(web.RequestPayloadError("framing"))
            self.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to bytes that are no request (400), or to what escaped all else."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client left amid its answer, which the request's own line tells
        if REQUEST_ID not in request:
            begin(request)
        name = type(exc).__name__ if exc else None
        log.warning("unserved", request_id=request[REQUEST_ID], status=status, error=name)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun: it can only be broken off")
        error = (
            BadRequest("What was sent is no valid HTTP/1.1 request.")
            if status == 400
            else InternalError("The appliance failed. Its log tells more.")
        )
        response = error_response(request, error)
        response.force_close()
        return response


async def _handled(handle: Handle, request: web.BaseRequest) -> web.StreamResponse:
    try:
        return await handle(request)
    except web.HTTPException:
        begin(request)
        return error_response(request, BadRequest("The header 'Expect' asks for the unknown."))
