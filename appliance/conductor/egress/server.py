"""The egress process: the only one with a network and with vendor keys, behind a Unix socket.

  POST /v1/chat/completions   x-conductor-permit, x-conductor-worker; plain or streamed
  GET  /v1/epoch              this run's epoch, which every permit must name
  GET  /healthz, /readyz

A request is sent when its permit passes the gate and its body the allow-list, and never otherwise.
Nothing of it but that body goes on; of the vendor's answer nothing but the answer comes back. A
caller that leaves aborts the vendor's call, before the first byte and after it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import orjson
import structlog
from aiohttp import web

from conductor.core import Body, Failure, Worker
from conductor.egress.gate import PermitGate
from conductor.egress.late import LateProvider
from conductor.egress.outgoing import vendor_body
from conductor.egress.permit import Permit
from conductor.egress.providers import Provider
from conductor.egress.revisions import Revisions
from conductor.errors import PermitRefused, WorkerError
from conductor.process.unixserver import Where, serving_app
from conductor.workers.headers import FAILURE, PERMIT, REASON, WORKER
from conductor.workers.sse import DONE, framed

_BODY_S = 30.0
"""Time for a request's body to arrive; `serve` sends it in one piece."""

_STATUS = {
    Failure.PERMIT: 403,
    Failure.BAD_REQUEST: 400,
    Failure.CONTEXT_LENGTH: 400,
    Failure.RATE_LIMITED: 429,
    Failure.OVERLOADED: 503,
    Failure.LOADING: 503,
    Failure.CONNECT_TIMEOUT: 504,
    Failure.FIRST_BYTE_TIMEOUT: 504,
    Failure.IDLE_TIMEOUT: 504,
    Failure.TOTAL_TIMEOUT: 504,
}
"""For people with curl; `serve` reads the failure header. Everything else is 502."""

log = structlog.get_logger()


def serving(
    where: Where, service: EgressService, *, drain_s: float
) -> AbstractAsyncContextManager[None]:
    """Serve there while the context is open. Raises `StartError`."""
    return serving_app(where, service.app(), drain_s=drain_s)


def new_epoch() -> str:
    """Of one run. Random, so that permits for another run never fit."""
    return secrets.token_hex(16)


@dataclass
class _Sending:
    """One permitted request, for the log."""

    permit: Permit
    worker: Worker
    started_s: float
    outcome: str = "aborted"
    detail: str = ""

    def failed(self, error: WorkerError) -> None:
        self.outcome, self.detail = error.failure, error.detail

    def log(self) -> None:
        log.info(
            "sent",
            permit_id=self.permit.id,
            decision_id=self.permit.decision_id,
            worker=self.worker.id,
            destination=self.worker.destination.id,
            label=self.permit.label,
            outcome=self.outcome,
            detail=self.detail,
            ms=round((time.monotonic() - self.started_s) * 1000),
        )


class EgressService:
    """The HTTP face of gate and provider. `max_body_bytes` bounds a request; new policies are
    learnt of by `revisions`; requests wait for a provider that is `late`."""

    def __init__(
        self,
        gate: PermitGate,
        provider: Provider,
        *,
        max_body_bytes: int,
        revisions: Revisions | None = None,
        late: LateProvider | None = None,
    ) -> None:
        self._late = late
        self._gate = gate
        self._revisions = revisions
        self._provider = provider
        self._max_body_bytes = max_body_bytes

    def app(self) -> web.Application:
        """A fresh application with the four routes."""
        app = web.Application(client_max_size=self._max_body_bytes)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self.chat),
                web.get("/v1/epoch", self.epoch),
                web.get("/healthz", self.health),
                web.get("/readyz", self.readiness),
            ]
        )
        return app

    async def health(self, _: web.Request) -> web.Response:
        """The process lives."""
        return _json(200, {"status": "ok"})

    async def readiness(self, _: web.Request) -> web.Response:
        """It can send."""
        loaded = self._late is None or self._late.loaded
        return _json(*((200, {"status": "ready"}) if loaded else (503, {"status": "loading"})))

    async def epoch(self, _: web.Request) -> web.Response:
        """What permits for this run must name."""
        return _json(200, {"epoch": self._gate.epoch})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """One permitted call."""
        try:
            raw = await _read(request)
            if self._late is not None:
                await self._late.wait()
            token = request.headers.get(PERMIT, "")
            if self._revisions is not None:
                await self._revisions.learn(self._gate.named_revision(token))
            permit, worker = self._gate.check(token, raw, request.headers.get(WORKER, ""))
        except PermitRefused as refused:
            log.warning("permit_refused", reason=refused.reason)
            return _refusal(WorkerError(Failure.PERMIT, refused.reason))
        except WorkerError as error:
            return _refusal(error)
        sending = _Sending(permit, worker, time.monotonic())
        try:
            body = vendor_body(worker, raw)
            if body.get("stream"):
                return await self._streamed(request, sending, body)
            answer = await self._provider.complete(worker, body)
            response = _json(200, answer)
            sending.outcome = "ok"
            return response
        except WorkerError as error:
            sending.failed(error)
            return _refusal(error)
        finally:
            sending.log()

    async def _streamed(
        self, request: web.Request, sending: _Sending, body: Body
    ) -> web.StreamResponse:
        """Headers go out with the first chunk: an earlier failure has a real status, a later one
        is told in the stream, which then ends without `[DONE]`."""
        async with self._provider.stream(sending.worker, body) as chunks:
            chunk = await anext(chunks, None)
            if chunk is None:
                raise WorkerError(Failure.CUT, "no chunk")
            first = _event(chunk)
            response = web.StreamResponse(
                headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
            )
            await response.prepare(request)
            try:
                await response.write(first)
                async for chunk in chunks:
                    await response.write(_event(chunk))
                await response.write(framed(DONE))
                sending.outcome = "ok"
            except WorkerError as error:
                sending.failed(error)
                await response.write(_event(_envelope(error)))
            await response.write_eof()
            return response


async def _read(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except TimeoutError:
        raise WorkerError(Failure.BAD_REQUEST, "the body did not arrive in time") from None
    except web.HTTPRequestEntityTooLarge:
        raise WorkerError(Failure.BAD_REQUEST, "the body is too large") from None


def _refusal(error: WorkerError) -> web.Response:
    headers = {FAILURE: str(error.failure)}
    if error.failure is Failure.PERMIT:
        headers[REASON] = error.detail
    if error.retry_after_s is not None:
        headers["Retry-After"] = f"{error.retry_after_s:g}"
    return _json(_STATUS.get(error.failure, 502), _envelope(error), headers)


def _envelope(error: WorkerError) -> Body:
    """Our words and the vendor's numbers, never the vendor's words."""
    message = f"egress: {error.failure}"
    if error.window is not None:
        window, asked = error.window
        message = (
            f"This model's maximum context length is {window} tokens. "
            f"However, your messages resulted in {asked} tokens."
        )
    return {"error": {"message": message, "type": "api_error", "failure": str(error.failure)}}


def _event(value: Body) -> bytes:
    return framed(_encode(value))


def _encode(value: Body) -> bytes:
    """Raises `WorkerError` for what no JSON text can hold: a vendor may send half a character,
    numbers without end, or lists in lists in lists."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise WorkerError(Failure.MALFORMED, "cannot be written as JSON") from None


def _json(status: int, value: Body, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status,
        body=_encode(value),
        content_type="application/json",
        headers=headers,
    )
