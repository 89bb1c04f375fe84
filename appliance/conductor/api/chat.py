"""`POST /v1/chat/completions`: HTTP on the outside, `run/conduct.py` on the inside.

Status and headers are held until the answer has begun, so that a failure before the first content
still gets a real status. When that takes longer than `hold_s` (a model loads), a stream is opened
with comments that keep the client's read timer fed; a failure after that is told in-band.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

import structlog
from aiohttp import web

from conductor.api import sse
from conductor.api.bodies import BodyGate
from conductor.api.middleware import (
    FIRST_BYTE_S,
    KEY,
    MODEL,
    OUTCOME,
    OUTPUT_TOKENS,
    REQUEST_ID,
    STARTED_S,
    WORKERS_S,
    Door,
    base_headers,
    json_response,
)
from conductor.chat.request import ChatRequest, parse_chat
from conductor.core import Body
from conductor.errors import (
    ApiError,
    ConductorError,
    InternalError,
    Overloaded,
    UpstreamFailed,
    UpstreamTimeout,
    WorkerError,
)
from conductor.labels import Lattice
from conductor.run.conduct import Conduct, Conducted, plan_text, step_facts
from conductor.run.executor import Answer
from conductor.run.failover import TIMEOUTS

KEEP_ALIVE_S = 5.0

log = structlog.get_logger("api")


class ChatHandler:
    """The endpoint. `hold_s` and `total_s` in seconds."""

    def __init__(
        self,
        *,
        conduct: Conduct,
        lattice: Lattice,
        gate: BodyGate,
        door: Door,
        hold_s: float,
        total_s: float,
    ) -> None:
        self._conduct = conduct
        self._lattice = lattice
        self._gate = gate
        self._door = door
        self._hold_s = hold_s
        self._total_s = total_s

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        async with self._gate.body(request) as raw:
            chat = parse_chat(raw)
            request[MODEL] = chat.model
            ask = _Ask(request, chat, raw, Conducted(request[REQUEST_ID]))
            out = _Stream(request)
            try:
                async with asyncio.timeout(self._total_s):
                    return await (self._streamed(ask, out) if chat.stream else self._plain(ask))
            except TimeoutError:
                late = UpstreamTimeout(
                    "The request took longer than this appliance allows (limits.total_s)."
                )
                await self._failed(out, ask.state, late)
                return out.response
            finally:
                if ask.state.run is not None:
                    request[WORKERS_S] = ask.state.run.job.budget.busy_s
                    request[OUTPUT_TOKENS] = ask.state.run.usage.completion_tokens

    async def _plain(self, ask: _Ask) -> web.StreamResponse:
        request, state = ask.request, ask.state
        try:
            async with self._answer(ask) as answer:
                if answer.body is None:
                    raise InternalError("The appliance failed to put an answer together.")
                body = {**answer.body, "model": answer.worker}
                if _traced(request):
                    body["conductor"] = self._trace(state)
                return json_response(request, body, headers=self._headers(state))
        except ApiError as error:
            error.headers.update(self._headers(state))
            raise

    async def _streamed(self, ask: _Ask, out: _Stream) -> web.StreamResponse:
        request, state = ask.request, ask.state
        hold = asyncio.create_task(self._keep_alive(out, state))
        try:
            async with self._answer(ask) as answer:
                await _stop(hold)
                await out.open(self._headers(state))
                request[FIRST_BYTE_S] = time.monotonic() - request[STARTED_S]
                traced = _traced(request)
                async for chunk in _visible(answer, ask.chat.include_usage):
                    if traced and not chunk["choices"]:
                        chunk = {**chunk, "conductor": self._trace(state)}
                    await out.send(sse.event(chunk))
            await out.end()
        except (ApiError, WorkerError) as error:
            await _stop(hold)
            await self._failed(out, state, error)
        except asyncio.CancelledError:
            await self._cut_short(out)
            raise
        finally:
            await _stop(hold)
        return out.response

    def _answer(self, ask: _Ask) -> AbstractAsyncContextManager[Answer]:
        declared = ask.request.headers.get("x-conductor-label")
        return self._conduct.answer(ask.state, ask.chat, ask.raw, ask.request[KEY], declared)

    async def _failed(self, out: _Stream, state: Conducted, error: ConductorError) -> None:
        """Before anything was sent: let the envelope be sent. After: one in-band error, no DONE."""
        shown = error if isinstance(error, ApiError) else _in_band(error)
        if not out.opened:
            shown.headers.update(self._headers(state))
            raise shown
        log.warning("stream_failed", code=shown.code, failure=_failure(error))
        await out.send(sse.error_event(shown))
        out.request[OUTCOME] = "failed"

    async def _cut_short(self, out: _Stream) -> None:
        """The client left, or the server stops and its patience is over."""
        out.request[OUTCOME] = "aborted"
        if self._door.draining and out.opened:
            with suppress(ConnectionError):
                await out.send(sse.error_event(Overloaded("The appliance is stopping.")))

    async def _keep_alive(self, out: _Stream, state: Conducted) -> None:
        await asyncio.sleep(self._hold_s)
        await out.open(self._headers(state))
        while True:
            await out.send(sse.KEEP_ALIVE)
            await asyncio.sleep(KEEP_ALIVE_S)

    def _headers(self, state: Conducted) -> dict[str, str]:
        headers = {"x-conductor-decision": state.decision_id}
        if state.judged is not None:
            headers["x-conductor-label"] = self._lattice.show(state.judged.label)
        if state.drafted is not None:
            planned = state.drafted.planned
            headers["x-conductor-engine"] = f"{planned.engine}@{planned.where}"
        if state.run is not None and state.run.answered_by:
            headers["x-conductor-model"] = state.run.answered_by
        return headers

    def _trace(self, state: Conducted) -> Body:
        """Plan and accounting, for a client that asked with `x-conductor-trace: true`."""
        if state.run is None or state.drafted is None or state.judged is None:
            return {}
        return {
            "label": self._lattice.show(state.judged.label),
            "permitted": [worker.id for worker in state.judged.permitted],
            "plan": plan_text(state.drafted),
            "engine": state.drafted.planned.engine,
            "steps": step_facts(state.run, self._lattice),
            "cost_usd": round(state.run.cost_usd, 6),
        }


@dataclass(frozen=True)
class _Ask:
    """One request at this endpoint."""

    request: web.Request
    chat: ChatRequest
    raw: bytes
    state: Conducted


class _Stream:
    """The response side of a stream; opening and sending from two tasks stays in order."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self.response = web.StreamResponse(headers=sse.HEADERS)
        self.opened = False
        self._lock = asyncio.Lock()

    async def open(self, headers: dict[str, str]) -> None:
        async with self._lock:
            if not self.opened:
                self.response.headers.update({**base_headers(self.request), **headers})
                await self.response.prepare(self.request)
                self.opened = True

    async def send(self, data: bytes) -> None:
        async with self._lock:
            await self.response.write(data)

    async def end(self) -> None:
        await self.send(sse.DONE)
        await self.response.write_eof()


async def _visible(answer: Answer, include_usage: bool) -> AsyncIterator[Body]:
    """The chunks as this client asked for them: with or without usage."""
    if answer.chunks is None:
        raise InternalError("The appliance failed to put an answer together.")
    async for chunk in answer.chunks:
        if include_usage:
            yield chunk
        elif chunk["choices"]:
            chunk.pop("usage", None)
            yield chunk


async def _stop(task: asyncio.Task[None]) -> None:
    """Cancel and wait; a client that left while being kept alive shows in the main task."""
    task.cancel()
    with suppress(asyncio.CancelledError, ConnectionError):
        await task


def _in_band(error: ConductorError) -> ApiError:
    if isinstance(error, WorkerError) and error.failure in TIMEOUTS:
        return UpstreamTimeout("The model stopped answering in time.")
    return UpstreamFailed("The model's answer broke off.")


def _failure(error: ConductorError) -> str:
    return str(error.failure) if isinstance(error, WorkerError) else type(error).__name__


def _traced(request: web.Request) -> bool:
    return request.headers.get("x-conductor-trace", "").lower() == "true"
