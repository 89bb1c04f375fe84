"""Answers in the API's form: JSON, the error envelope, and the headers that every answer has."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

import orjson
from aiohttp import web

from conductor.errors import ApiError

REQUEST_ID = web.RequestKey("request_id", str)
STARTED_S = web.RequestKey("started_s", float)


def begin(request: web.BaseRequest) -> None:
    """Give the request its id and note when it came. Comes before everything else here."""
    request[REQUEST_ID] = f"req_{secrets.token_hex(12)}"
    request[STARTED_S] = time.monotonic()


def base_headers(request: web.BaseRequest) -> dict[str, str]:
    """Headers on every answer and error."""
    elapsed_ms = round((time.monotonic() - request[STARTED_S]) * 1000)
    return {
        "x-request-id": request[REQUEST_ID],
        "openai-processing-ms": str(elapsed_ms),
        "openai-version": "2020-10-01",
        # In place of aiohttp's own, which tells the versions of Python and of the library.
        "Server": "conductor",
    }


def json_response(
    request: web.BaseRequest,
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


def error_response(request: web.BaseRequest, error: ApiError) -> web.Response:
    """The envelope of `error`."""
    response = json_response(request, error.envelope(), status=error.status, headers=error.headers)
    if error.headers.get("Connection") == "close":
        response.force_close()
    return response
