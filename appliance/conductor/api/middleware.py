"""Around every request: an id, the key, error envelopes, a log line, metrics.

One place turns whatever escapes a handler into the envelope that clients read, so no path answers
with a stack trace, a plain text or somebody else's words.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from conductor.api.envelope import (
    REQUEST_ID,
    STARTED_S,
    base_headers,
    begin,
    error_response,
)
from conductor.api.keys import KeyRing
from conductor.errors import (
    ApiError,
    BadRequest,
    InternalError,
    MethodNotAllowed,
    NotFound,
    Overloaded,
)
from conductor.metrics import Metrics
from conductor.settings import Key

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

KEY = web.RequestKey("key", Key)
MODEL = web.RequestKey("model", str)
FIRST_BYTE_S = web.RequestKey("first_byte_s", float)
OUTCOME = web.RequestKey("outcome", str)
WORKERS_S = web.RequestKey("workers_s", float)
OUTPUT_TOKENS = web.RequestKey("output_tokens", int)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
MAX_CLIENT_ID_CHARS = 512
"""Of a client's own `X-Client-Request-Id`; a longer one is not repeated in the log."""

log = structlog.get_logger()


class Door:
    """Which requests are inside, and whether new ones are let in."""

    def __init__(self) -> None:
        self.draining = False
        self.closed = False
        self.empty = asyncio.Event()
        self.empty.set()
        self._inside: set[asyncio.Task[object] | None] = set()

    @property
    def inside(self) -> int:
        return len(self._inside)

    @contextmanager
    def passed(self) -> Iterator[None]:
        """The current task counts as inside."""
        task = asyncio.current_task()
        self._inside.add(task)
        self.empty.clear()
        try:
            yield
        finally:
            self._inside.discard(task)
            if not self._inside:
                self.empty.set()

    def clear(self) -> None:
        """Cancel whatever is inside. For good: nothing is let in again."""
        self.draining = self.closed = True
        for task in self._inside:
            if task is not None:
                task.cancel()


def edge(ring: KeyRing, metrics: Metrics, door: Door) -> Middleware:
    """The outermost middleware of the API listener."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        begin(request)
        if request.path.rstrip("/") in OPEN_PATHS:
            return await _enveloped(request, handler)
        with structlog.contextvars.bound_contextvars(request_id=request[REQUEST_ID]), door.passed():
            metrics.request_began()
            response: web.StreamResponse | None = None
            try:
                response = await _enveloped(request, partial(_admit, ring, door, handler))
                return response
            finally:
                _finish(request, response, metrics)

    return middleware


@web.middleware
async def open_edge(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The middleware of the admin listener: no key, no count, the same form of errors."""
    begin(request)
    return await _enveloped(request, handler)


async def _admit(
    ring: KeyRing, door: Door, handler: Handler, request: web.Request
) -> web.StreamResponse:
    if door.draining:
        raise _stopping()
    request[KEY] = ring.principal(_authorization(request))
    with ring.admitted(request[KEY]):
        try:
            return await handler(request)
        except asyncio.CancelledError:
            if door.closed and not _begun(request):
                raise _stopping() from None
            raise


def _authorization(request: web.Request) -> str | None:
    """What the header says. Sent twice it says nothing: a proxy in front may have judged the other
    one."""
    given = request.headers.getall("Authorization", [])
    return given[0] if len(given) == 1 else None


def _stopping() -> Overloaded:
    headers = {"Connection": "close"}
    return Overloaded("The appliance is stopping.", retry_after_s=5, headers=headers)


def _begun(request: web.Request) -> bool:
    """Whether the head of an answer is out, so that no other answer can follow."""
    return request.writer.output_size > 0


async def _enveloped(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What `handler` answers; whatever it raises, as an envelope."""
    try:
        _routed(request)
        if request.method == "OPTIONS":
            return _options(request)
        return await handler(request)
    except ApiError as error:
        return error_response(request, error)
    except web.HTTPException:
        return error_response(request, BadRequest("The request cannot be served as sent."))
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:
        log.error("unhandled", exc_info=error)
        if _begun(request):
            raise ConnectionResetError from None
        return error_response(request, InternalError("The appliance failed. Its log tells more."))


def declared_label(request: web.Request) -> str | None:
    """What the header `x-conductor-label` says."""
    return _said(request, "x-conductor-label")


def declared_cost_weight(request: web.Request) -> str | None:
    """What the header `x-conductor-cost-weight` says."""
    return _said(request, "x-conductor-cost-weight")


def _said(request: web.Request, header: str) -> str | None:
    """A header's text. Sent twice it is no value that anybody reads, so that neither of the two is
    overlooked."""
    given = request.headers.getall(header, [])
    return ", ".join(given) if given else None


def _routed(request: web.Request) -> None:
    """Raise the envelope form of a route that does not exist."""
    fault = request.match_info.http_exception
    if fault is None:
        return
    if isinstance(fault, web.HTTPMethodNotAllowed):
        if request.method == "OPTIONS":
            return
        allowed = ", ".join(sorted(fault.allowed_methods))
        raise MethodNotAllowed(f"Use {allowed} for this address.", headers={"Allow": allowed})
    raise NotFound("There is no such address. GET /v1/models lists what can be called.")


def _options(request: web.Request) -> web.Response:
    fault = request.match_info.http_exception
    methods = fault.allowed_methods if isinstance(fault, web.HTTPMethodNotAllowed) else set()
    allowed = ", ".join(sorted({*methods, "OPTIONS"}))
    return web.Response(status=204, headers={"Allow": allowed, **base_headers(request)})


def _finish(request: web.Request, response: web.StreamResponse | None, metrics: Metrics) -> None:
    seconds = time.monotonic() - request[STARTED_S]
    status = response.status if response is not None else 499
    outcome = request.get(OUTCOME) or _outcome(status)
    metrics.request_done(
        request.get(MODEL, ""),
        status,
        outcome,
        total_s=seconds,
        own_s=seconds - request.get(WORKERS_S, 0.0),
        first_byte_s=request.get(FIRST_BYTE_S),
        output_tokens=request.get(OUTPUT_TOKENS, 0),
    )
    key = request.get(KEY)
    log.info(
        "request",
        method=request.method,
        route=_route(request),
        status=status,
        outcome=outcome,
        key=key.id if key else None,
        ms=round(seconds * 1000),
        client_request=_client_id(request),
    )


def _outcome(status: int) -> str:
    if status == 499:
        return "aborted"
    return "completed" if status < 400 else "failed"


def _route(request: web.Request) -> str:
    """The route's pattern, never the client's own path."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "other"


def _client_id(request: web.Request) -> str | None:
    given = request.headers.get("X-Client-Request-Id")
    if (
        given is None
        or len(given) > MAX_CLIENT_ID_CHARS
        or not given.isascii()
        or not given.isprintable()
    ):
        return None
    return given
