"""One request to one vendor, watched at the last place that is ours.

The vendor library is handed an `Exchange` as its HTTP transport. Whatever the library would like
to do, an exchange sends one request, to one origin, with an allow-list of headers in a fixed
order, and follows nothing. The vendor's key is added here, so that the library never holds it.
And it is the witness: it knows how a call truly ended, where the library guesses (it turns an
empty stream into a finished answer).

Needs httpx, which comes with the `egress` extra: only `providers.py` imports this module, late.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import httpx

from conductor.core import Body, Failure, Worker, WorkerLimits
from conductor.errors import WorkerError
from conductor.workers.answers import completion
from conductor.workers.failures import refusal

MAX_ANSWER_BYTES = 32 * 2**20
"""Of one answer, on the wire. A vendor is not trusted with this machine's memory either."""

_MAX_REFUSAL = 64 * 1024
MAX_CHOICES = 16
MAX_CALLS = 128
_MAX_OBJECTS = 200_000
"""In one plain answer: eight choices of a thousand tokens with their twenty alternatives each."""

KEEP_ALIVE_S = 4.0
"""Below the 5 s after which common servers close an idle connection: whoever closes first cannot
be raced."""

_DONE = re.compile(rb"(?:\A|\n)data: ?\[DONE\]")
# Inside a JSON string the quotes would be escaped, so that no model can write these.
_FINISH = re.compile(rb'"finish_reason" ?: ?"')
_CHOICES = re.compile(rb'"choices" ?: ?\[\s?\{')
_USAGE = re.compile(rb'"usage" ?: ?\{')
_TAIL = 32  # longer than any of these


def origin_of(base_url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: where an exchange may connect to."""
    url = httpx.URL(base_url)
    return url.scheme, url.host, url.port


def connections() -> httpx.AsyncHTTPTransport:
    """The connection pool of one worker. No proxy, no environment, no HTTP/2, no retries."""
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=32, keepalive_expiry=KEEP_ALIVE_S
    )
    return httpx.AsyncHTTPTransport(trust_env=False, limits=limits)


def memory(asked: list[str]) -> httpx.AsyncBaseTransport:
    """Answers "pong" without a network, and notes the method of each request in `asked`."""
    common = {"id": "memory", "created": 1, "model": "memory"}
    pong = {"role": "assistant", "content": "pong"}

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        choice: dict[str, object] = {"index": 0, "finish_reason": "stop"}
        if request.headers["accept"] == "application/json":
            whole = {
                **common,
                "object": "chat.completion",
                "choices": [{**choice, "message": pong}],
            }
            return httpx.Response(200, json=whole)
        chunk = {
            **common,
            "object": "chat.completion.chunk",
            "choices": [{**choice, "delta": pong}],
        }
        text = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)

    return httpx.MockTransport(answer)


class Exchange(httpx.AsyncBaseTransport):
    """A transport for a single request; afterwards, what became of it."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        worker: Worker,
        origin: tuple[str, str, int | None],
        key: str,
        *,
        stream: bool,
    ) -> None:
        self.began = False
        """The vendor's head has come, and it was status 200."""
        self.error: WorkerError | None = None
        """What went wrong on the wire, or what the vendor refused with."""
        self.done = False
        """The stream said `[DONE]`."""
        self.finished = False
        """Some choice of the stream had a finish reason."""
        self.answered = False
        """Some choice of an answer has come."""
        self.usage = False
        """The vendor stated one."""
        self._inner = inner
        self._limits = worker.limits
        self._origin = origin
        self._key = key
        self._kind = "text/event-stream" if stream else "application/json"
        self._used = False
        self._response: httpx.Response | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send, once. Raises httpx errors, after noting in `error` what they mean."""
        url = request.url
        if self._used or (url.scheme, url.host, url.port) != self._origin:
            raise self._failed(Failure.SERVER_ERROR, "second request or foreign origin")
        self._used = True
        body = await request.aread()
        outgoing = httpx.Request(
            "POST",
            url,
            headers=self._headers(request, body),
            content=body,
            extensions={"timeout": _timeouts(self._limits)},
        )
        self._response = await self._send(outgoing)
        return await self._answer(self._response)

    async def abort(self) -> None:
        """Close the vendor's connection, unless the answer was read to its end."""
        if self._response is not None:
            await self._response.aclose()

    async def aclose(self) -> None:
        """The library may close its client after each call; the connections below stay."""

    def _headers(self, request: httpx.Request, body: bytes) -> list[tuple[str, str]]:
        return [
            ("Host", request.url.netloc.decode("ascii")),
            ("User-Agent", "conductor"),
            ("Accept", self._kind),
            ("Accept-Encoding", "identity"),
            ("Authorization", f"Bearer {self._key}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ]

    async def _send(self, request: httpx.Request) -> httpx.Response:
        limits = self._limits
        try:
            # httpcore's timers run from byte to byte; this one stops a head that trickles.
            async with asyncio.timeout(limits.connect_s + limits.first_byte_s):
                return await self._inner.handle_async_request(request)
        except (TimeoutError, httpx.TransportError) as error:
            raise self._failed(_head_failure(error), type(error).__name__) from None

    async def _answer(self, response: httpx.Response) -> httpx.Response:
        """The vendor's answer without its headers, and with every byte of its body watched.

        A refusal is read and judged here, so that the library never sees the vendor's words.
        """
        status, headers = response.status_code, response.headers
        assert isinstance(response.stream, httpx.AsyncByteStream)
        if status != 200:
            words = b"".join([chunk async for chunk in self._watch(response.stream, _MAX_REFUSAL)])
            self.error = refusal(status, headers, words)
            return httpx.Response(status, json={})
        if headers.get("content-encoding", "identity") != "identity":
            raise self._failed(Failure.MALFORMED, "an encoding that was not asked for")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != self._kind:
            raise self._failed(Failure.MALFORMED, "another content type")
        self.began = True
        watched = self._watch(response.stream, MAX_ANSWER_BYTES)
        kind = {"content-type": self._kind}
        if self._kind == "text/event-stream":
            return httpx.Response(200, headers=kind, stream=_Watched(watched, response))
        whole = b"".join([chunk async for chunk in watched])
        self._check_plain(whole)
        return httpx.Response(200, headers=kind, content=whole)

    def _check_plain(self, whole: bytes) -> None:
        """Let the library see only what it can read in moderate time: it takes a third of a
        millisecond a choice, and as long everybody else waits."""
        try:
            choices = completion(whole)["choices"]
        except WorkerError as error:
            raise self._failed(error.failure, error.detail) from None
        most = max(map(_calls, choices), default=0)
        if len(choices) > MAX_CHOICES or most > MAX_CALLS or whole.count(b"{") > _MAX_OBJECTS:
            raise self._failed(Failure.MALFORMED, "more than was asked for")

    async def _watch(self, stream: httpx.AsyncByteStream, limit: int) -> AsyncIterator[bytes]:
        """The body's bytes, within the idle timer and a size limit."""
        size, tail = 0, b""
        chunks = aiter(stream)
        while (chunk := await self._next(chunks)) is not None:
            size += len(chunk)
            if size > limit:
                raise self._failed(Failure.MALFORMED, "too large")
            seen = tail + chunk
            self.done = self.done or _DONE.search(seen) is not None
            self.answered = self.answered or _CHOICES.search(seen) is not None
            self.finished = self.finished or _FINISH.search(seen) is not None
            self.usage = self.usage or _USAGE.search(seen) is not None
            tail = seen[-_TAIL:]
            yield chunk

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout(self._limits.idle_s):
                return await anext(chunks, None)
        except (TimeoutError, httpx.TimeoutException):
            raise self._failed(Failure.IDLE_TIMEOUT, "between chunks") from None
        except httpx.TransportError:
            raise self._failed(Failure.CUT, "connection ended") from None

    def _failed(self, failure: Failure, detail: str) -> httpx.TransportError:
        """Note the first thing that went wrong; returns what the library is told of it."""
        self.error = self.error or WorkerError(failure, detail)
        return httpx.TransportError("the exchange failed")


class _Watched(httpx.AsyncByteStream):
    def __init__(self, chunks: AsyncIterator[bytes], response: httpx.Response) -> None:
        self._chunks = chunks
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        await self._response.aclose()


def _calls(choice: Body) -> int:
    """How many tool calls a choice holds."""
    message = choice.get("message")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return len(calls) if isinstance(calls, list) else 0


def _timeouts(limits: WorkerLimits) -> dict[str, float]:
    return {
        "connect": limits.connect_s,
        "pool": limits.connect_s,
        "write": limits.idle_s,
        "read": max(limits.first_byte_s, limits.idle_s),
    }


def _head_failure(error: Exception) -> Failure:
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return Failure.CONNECT_TIMEOUT
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return Failure.FIRST_BYTE_TIMEOUT
    return Failure.REFUSED if isinstance(error, httpx.ConnectError) else Failure.CUT
