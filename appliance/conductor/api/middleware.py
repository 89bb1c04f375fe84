"""Around every request: an id, the key, error envelopes, a log line, metrics.

One place turns whatever escapes a handler into the envelope that clients read, so no path answers
with a stack trace, a plain text or somebody else's words.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

import orjson
import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from conductor.api.keys import KeyRing
from conductor.config import Key
from conductor.errors import (
    ApiError,
    BadRequest,
    InternalError,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    TooLarge,
)
from conductor.logs import error_name
from conductor.metrics import Metrics

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REQUEST_ID = web.RequestKey("request_id", str)
KEY = web.RequestKey("key", Key)
STARTED_S = web.RequestKey("started_s", float)
MODEL = web.RequestKey("model", str)
FIRST_BYTE_S = web.RequestKey("first_byte_s", float)
OUTCOME = web.RequestKey("outcome", str)
WORKERS_S = web.RequestKey("workers_s", float)
OUTPUT_TOKENS = web.RequestKey("output_tokens", int)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
MAX_CLIENT_ID = 512

log = structlog.get_logger("api")


class Door:
    """How many requests are inside, and whether new ones are let in."""

    def __init__(self) -> None:
        self.inside = 0
        self.draining = False
        self.empty = asyncio.Event()
        self.empty.set()

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Be counted as inside."""
        self.inside += 1
        self.empty.clear()
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self.empty.set()


def edge(ring: KeyRing, metrics: Metrics, door: Door) -> Middleware:
    """The outermost middleware of the API listener."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[REQUEST_ID] = f"req_{secrets.token_hex(12)}"
        request[STARTED_S] = time.monotonic()
        if request.path in OPEN_PATHS:
            return await handler(request)
        with structlog.contextvars.bound_contextvars(request_id=request[REQUEST_ID]), door.passed():
            metrics.request_began()
            response: web.StreamResponse | None = None
            try:
                response = await _guarded(request, handler, ring, door)
                return response
            finally:
                _finish(request, response, metrics)

    return middleware


async def _guarded(
    request: web.Request, handler: Handler, ring: KeyRing, door: Door
) -> web.StreamResponse:
    try:
        _routed(request)
        if request.method == "OPTIONS":
            return _options(request)
        if door.draining:
            raise Overloaded(
                "The appliance is stopping.", retry_after_s=5, headers={"Connection": "close"}
            )
        request[KEY] = ring.principal(request.headers.get("Authorization"))
        with ring.admitted(request[KEY]):
            response = await handler(request)
    except ApiError as error:
        return error_response(request, error)
    except web.HTTPRequestEntityTooLarge:
        return error_response(request, TooLarge("The request body is too large."))
    except web.HTTPException:
        return error_response(request, BadRequest("The request cannot be served as sent."))
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - the boundary: whatever escapes becomes a 500
        log.error("unhandled", error=error_name(error), where=_where(error))
        return error_response(request, InternalError("The appliance failed. Its log tells more."))
    return response


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


def base_headers(request: web.Request) -> dict[str, str]:
    """Headers on every answer and error."""
    elapsed_ms = round((time.monotonic() - request[STARTED_S]) * 1000)
    return {
        "x-request-id": request[REQUEST_ID],
        "openai-processing-ms": str(elapsed_ms),
        "openai-version": "2020-10-01",
    }


def json_response(
    request: web.Request,
    body: object,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """A JSON answer with the common headers."""
    return web.Response(
        body=orjson.dumps(body),
        status=status,
        content_type="application/json",
        headers={**base_headers(request), **(headers or {})},
    )


def error_response(request: web.Request, error: ApiError) -> web.Response:
    """The envelope of `error`."""
    response = json_response(request, error.envelope(), status=error.status, headers=error.headers)
    if error.headers.get("Connection") == "close":
        response.force_close()
    return response


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
        or len(given) > MAX_CLIENT_ID
        or not given.isascii()
        or not given.isprintable()
    ):
        return None
    return given


def _where(error: BaseException) -> str:
    """File and line of the innermost frame; no values, no messages."""
    trace = error.__traceback__
    if trace is None:
        return "?"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
