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
from conductor.api.bodies import BodyGate, parsed
from conductor.api.envelope import REQUEST_ID, STARTED_S, base_headers, json_response
from conductor.api.middleware import (
    FIRST_BYTE_S,
    KEY,
    MODEL,
    OUTCOME,
    OUTPUT_TOKENS,
    WORKERS_S,
    Door,
    declared_cost_weight,
    declared_label,
)
from conductor.chat.request import ChatRequest
from conductor.core import Body
from conductor.errors import (
    ApiError,
    InternalError,
    Overloaded,
    UpstreamFailed,
    UpstreamTimeout,
    WorkerError,
)
from conductor.logs import error_name
from conductor.run.conduct import Conduct, Conducted
from conductor.run.facts import round_facts, step_facts
from conductor.run.failover import TIMEOUTS
from conductor.run.job import Answer

KEEP_ALIVE_S = 5.0

log = structlog.get_logger()


class ChatHandler:
    """The endpoint. `hold_s` in seconds."""

    def __init__(
        self,
        *,
        conduct: Conduct,
        gate: BodyGate,
        door: Door,
        hold_s: float,
    ) -> None:
        self._conduct = conduct
        self._gate = gate
        self._door = door
        self._hold_s = hold_s

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        async with self._gate.body(request) as raw:
            chat = await parsed(raw)
            request[MODEL] = chat.model
            ask = _Ask(request, chat, raw, Conducted(request[REQUEST_ID]))
            try:
                return await (self._streamed(ask) if chat.stream else self._plain(ask))
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
                trace = {"conductor": self._trace(state)} if _traced(request) else {}
                return json_response(
                    request, {**answer.body, **trace}, headers=self._headers(state)
                )
        except ApiError as error:
            error.headers.update(self._headers(state))
            raise

    async def _streamed(self, ask: _Ask) -> web.StreamResponse:
        request, state, out = ask.request, ask.state, _Stream(ask.request)
        hold = asyncio.create_task(self._keep_alive(out, state))
        try:
            async with self._answer(ask) as answer:
                await _stop(hold)
                await out.open(self._headers(state))
                request[FIRST_BYTE_S] = time.monotonic() - request[STARTED_S]
                traced = _traced(request)
                async for chunk in _chunks(answer):
                    if not _as_asked(chunk, ask.chat.include_usage):
                        continue
                    if traced and not chunk["choices"]:
                        chunk = {**chunk, "conductor": self._trace(state)}
                    await out.send(sse.event(chunk))
            await out.end()
        except asyncio.CancelledError:
            await self._cut_short(out)
            raise
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - nobody else can still tell the client
            await _stop(hold)
            await self._failed(out, state, error)
        finally:
            await _stop(hold)
        return out.response

    def _answer(self, ask: _Ask) -> AbstractAsyncContextManager[Answer]:
        request = ask.request
        return self._conduct.answer(
            ask.state,
            ask.chat,
            ask.raw,
            request[KEY],
            declared_label(request),
            declared_cost_weight(request),
        )

    async def _failed(self, out: _Stream, state: Conducted, error: Exception) -> None:
        """Before anything was sent: let the envelope be sent. After: one in-band error, no DONE."""
        if not out.opened:
            if isinstance(error, ApiError):
                error.headers.update(self._headers(state))
            raise error
        shown = error if isinstance(error, ApiError) else _in_band(error)
        log.warning("stream_failed", code=shown.code, failure=_failure(error))
        out.request[OUTCOME] = "failed"
        await out.break_off(shown)

    async def _cut_short(self, out: _Stream) -> None:
        """The client left, or the server stops and its patience is over."""
        out.request[OUTCOME] = "aborted"
        if self._door.draining and out.opened:
            with suppress(ConnectionError):
                await out.break_off(Overloaded("The appliance is stopping."))

    async def _keep_alive(self, out: _Stream, state: Conducted) -> None:
        await asyncio.sleep(self._hold_s)
        await out.open(self._headers(state))
        while True:
            await out.send(sse.KEEP_ALIVE)
            await asyncio.sleep(KEEP_ALIVE_S)

    def _headers(self, state: Conducted) -> dict[str, str]:
        headers = {"x-conductor-decision": state.decision_id}
        if state.judged is not None:
            label = state.judged.label if state.run is None else state.run.label
            headers["x-conductor-label"] = state.judged.policy.lattice.show(label)
        drafted = state.run.round.drafted if state.run is not None else state.drafted
        if drafted is not None:
            headers["x-conductor-engine"] = f"{drafted.planned.engine}@{drafted.planned.where}"
        if state.run is not None and state.run.answered_by:
            headers["x-conductor-model"] = state.run.answered_by
            headers["x-conductor-rounds"] = str(len(state.run.rounds))
        return headers

    def _trace(self, state: Conducted) -> Body:
        """Plan and accounting, for a client that asked with `x-conductor-trace: true`."""
        if state.run is None or state.judged is None:
            return {}
        lattice = state.judged.policy.lattice
        rounds = round_facts(state.run, lattice)
        return {
            "label": lattice.show(state.judged.label),
            "permitted": [worker.id for worker in state.judged.permitted],
            "plan": rounds[0]["plan"],
            "engine": rounds[0]["engine"],
            "rounds": rounds,
            "steps": step_facts(state.run, lattice),
            "answer_step": state.run.answer_step,
            "stood_in_for": state.run.stood_in_for or None,
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

    async def break_off(self, error: ApiError) -> None:
        """Say what went wrong, in place of `end`. The connection is not used again."""
        self.response.force_close()
        await self.send(sse.error_event(error))


def _chunks(answer: Answer) -> AsyncIterator[Body]:
    if answer.chunks is None:
        raise InternalError("The appliance failed to put an answer together.")
    return answer.chunks


def _as_asked(chunk: Body, include_usage: bool) -> bool:
    """Whether this client is to see the chunk; it loses its usage if none was asked for."""
    if not include_usage:
        chunk.pop("usage", None)
    return include_usage or bool(chunk["choices"])


async def _stop(task: asyncio.Task[None]) -> None:
    """Cancel and wait; a client that left while being kept alive shows in the main task.

    Not `await task`: that could not tell the end of `task` from the cancellation of whoever waits.
    """
    task.cancel()
    await asyncio.wait([task])
    with suppress(asyncio.CancelledError, ConnectionError):
        task.result()


def _in_band(error: Exception) -> ApiError:
    if not isinstance(error, WorkerError):
        log.error("unhandled", exc_info=error)
        return InternalError("The appliance failed. Its log tells more.")
    if error.failure in TIMEOUTS:
        return UpstreamTimeout("The model stopped answering in time.")
    return UpstreamFailed("The model's answer broke off.")


def _failure(error: Exception) -> str:
    return str(error.failure) if isinstance(error, WorkerError) else error_name(error)


def _traced(request: web.Request) -> bool:
    return request.headers.get("x-conductor-trace", "").lower() == "true"
