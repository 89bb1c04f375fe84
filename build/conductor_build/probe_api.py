"""Asks remote workers by way of the running appliance: under its policy, budget and audit log.

Nothing leaves the machine but through `serve`, whoever asks; the build stage holds no permit key. A
probe names the worker as the model, so that no other one answers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from conductor.core import Body, Call, Failure, Reply, Worker
from conductor.errors import WorkerError
from conductor.workers.answers import completion

MAX_REPLY_BYTES = 32 * 1024 * 1024
_FAILURES = {
    400: Failure.BAD_REQUEST,
    401: Failure.AUTH,
    403: Failure.PERMIT,
    404: Failure.BAD_REQUEST,
    429: Failure.RATE_LIMITED,
    503: Failure.OVERLOADED,
    504: Failure.TOTAL_TIMEOUT,
}


class ApiCaller:
    """Implements `core.Caller` over the API at `base_url` (`http://127.0.0.1:8080/v1`)."""

    def __init__(self, base_url: str, key: str) -> None:
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    @asynccontextmanager
    async def call(self, worker: Worker, call: Call) -> AsyncIterator[Reply]:
        """Send one attempt. Raises `WorkerError`; `PERMIT` where policy refuses."""
        body = orjson.dumps({**orjson.loads(call.body), "model": worker.id})
        timeout = aiohttp.ClientTimeout(total=min(call.total_s, worker.limits.total_s))
        try:
            async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
                async with session.post(self._url, data=body, headers=self._headers) as answer:
                    if answer.status != 200:
                        raise _refused(answer)
                    yield _Whole(completion(await _whole(answer)))
        except TimeoutError:
            raise WorkerError(Failure.TOTAL_TIMEOUT) from None
        except aiohttp.ClientConnectorError:
            raise WorkerError(Failure.REFUSED, "the appliance's API") from None
        except aiohttp.ClientError:
            raise WorkerError(Failure.CUT) from None


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    """All of it, in however many pieces it comes. Raises `WorkerError` for too much."""
    found = bytearray()
    async for piece in answer.content.iter_any():
        found += piece
        if len(found) > MAX_REPLY_BYTES:
            raise WorkerError(Failure.MALFORMED, "an answer that is too large")
    return bytes(found)


def _refused(answer: aiohttp.ClientResponse) -> WorkerError:
    failure = _FAILURES.get(answer.status, Failure.SERVER_ERROR)
    wait = answer.headers.get("Retry-After", "")
    retry_after_s = float(wait) if wait.isdigit() else None
    return WorkerError(failure, f"status {answer.status}", retry_after_s=retry_after_s)


class _Whole:
    """An answer that has come whole."""

    def __init__(self, body: Body) -> None:
        self._body = body

    async def json(self) -> Body:
        return self._body

    def events(self) -> AsyncGenerator[Any, None]:
        raise NotImplementedError("a probe does not stream")
