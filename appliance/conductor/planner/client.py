"""Asking the planner process, and planning in `serve` when it cannot be asked.

A request never fails because the planner does, in no round. Whatever comes back is read strictly
and checked against the request; anything else makes the fallback engine plan, and the answer says
why. What is known of the planner is its state:

    up          it answered a question, or at first contact said that it is ready
    down        nobody listens
    loading     it says so
    hung        it gave no plan in time
    trial       it was one of these three, and now says that it is ready: one question at a time is
                let through, and the first that is answered leads back to `up`

A watcher asks `/readyz` every `rest_s`. So a planner that hangs costs one timeout a rest, not one a
request, and one that comes back is found without traffic.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import aiohttp
import structlog

from conductor.core import PlanRequest
from conductor.errors import PlanError
from conductor.planner import wire
from conductor.planner.engine import Detour, PlanEngine, Planned

REST_S = 2.0
"""How long a planner that failed is left alone before it is looked at again."""
MAX_IN_FLIGHT = 128
"""Questions under way at once; the planner would tell a further one to wait in vain."""
_KEEP_ALIVE_S = 30.0
"""Shorter than the planner's own 75 s, so that it is never the one to close first."""
_PROBE_S = 1.0
_URL = "http://planner/v1/plan"
_READY_URL = "http://planner/readyz"
_JSON = {"Content-Type": "application/json"}

log = structlog.get_logger()


class PlannerState(StrEnum):
    """What `serve` knows of the planner process: for `/readyz` and metrics."""

    UNKNOWN = "unknown"
    UP = "up"
    LOADING = "loading"
    DOWN = "down"
    HUNG = "hung"
    TRIAL = "trial"


_AFTER: dict[Detour, PlannerState] = {
    Detour.DOWN: PlannerState.DOWN,
    Detour.LOADING: PlannerState.LOADING,
    Detour.TIMEOUT: PlannerState.HUNG,
}
"""Failures that tell something about later questions; with any other it did answer."""


class PlannerClient:
    """Asks over `socket`; `start` before the first `plan`, `close` at the end.

    `timeout_s` bounds one question, connecting included. `fallback` plans in this process.
    """

    def __init__(
        self, socket: Path, timeout_s: float, fallback: PlanEngine, *, rest_s: float = REST_S
    ) -> None:
        self._socket = socket
        self._timeout_s = timeout_s
        self._fallback = fallback
        self._rest_s = rest_s
        self._state = PlannerState.UNKNOWN
        self._in_flight = 0
        self._trial_under_way = False
        self._session: aiohttp.ClientSession | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def state(self) -> PlannerState:
        """What is known of the planner now."""
        return self._state

    async def start(self) -> None:
        """Open the session and begin to watch. The planner need not be there."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(
                str(self._socket), limit=MAX_IN_FLIGHT + 1, keepalive_timeout=_KEEP_ALIVE_S
            ),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
        )
        self._watcher = asyncio.create_task(self._watch(), name="planner watcher")

    async def close(self) -> None:
        """Stop watching and close every connection."""
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
        if self._session is not None:
            await self._session.close()

    async def plan(self, request: PlanRequest) -> Planned:
        """A plan that fits the request, whoever made it. Raises `PlanError` when none can."""
        request = wire.bounded(request)
        why = self._not_now()
        if why is None:
            answer = await self._ask(request)
            if isinstance(answer, Planned):
                return answer
            why = answer
        planned = wire.check(await self._fallback.plan(request), request)
        return replace(planned, where="serve", why=why)

    def _not_now(self) -> Detour | None:
        """Why the planner is not to be asked at this moment, if so."""
        if self._in_flight >= MAX_IN_FLIGHT:
            return Detour.BUSY
        if self._state in (PlannerState.UNKNOWN, PlannerState.UP):
            return None
        if self._state is PlannerState.TRIAL and not self._trial_under_way:
            return None
        return Detour.RESTING

    async def _ask(self, request: PlanRequest) -> Planned | Detour:
        """The planner's plan, or why there is none; keeps the state."""
        trial = self._state is PlannerState.TRIAL
        self._trial_under_way |= trial
        self._in_flight += 1
        try:
            answer = await self._exchange(request)
        finally:
            self._in_flight -= 1
            if trial:
                self._trial_under_way = False
        up = PlannerState.UP
        self._become(up if isinstance(answer, Planned) else _AFTER.get(answer, up))
        return answer

    async def _exchange(self, request: PlanRequest) -> Planned | Detour:
        body = wire.encode_request(request)
        try:
            async with asyncio.timeout(self._timeout_s):
                status, raw = await self._post_again(body)
        except TimeoutError:
            return Detour.TIMEOUT
        except _TooLong:
            return Detour.JUNK
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            return Detour.DOWN
        except aiohttp.ClientError:
            return Detour.JUNK
        return _read(raw, request) if status == 200 else _refused(status, raw)

    async def _post_again(self, body: bytes) -> tuple[int, bytes]:
        """Post; once more if a kept connection had died meanwhile: planning can be repeated."""
        try:
            return await self._post(body)
        except aiohttp.ClientConnectorError:
            raise
        except aiohttp.ClientConnectionError:
            return await self._post(body)

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        assert self._session is not None, "start() comes first"
        sent = self._session.post(_URL, data=body, headers=_JSON, allow_redirects=False)
        async with sent as response:
            return response.status, await _bounded_body(response)

    async def _watch(self) -> None:
        while True:
            self._note(await self._probe())
            await asyncio.sleep(self._rest_s)

    def _note(self, seen: PlannerState) -> None:
        """Take in what a probe saw."""
        if self._state is PlannerState.UNKNOWN and seen is PlannerState.TRIAL:
            self._become(PlannerState.UP)
        elif self._state is not PlannerState.UP:
            self._become(seen)
        elif seen in (PlannerState.DOWN, PlannerState.LOADING):
            self._become(seen)  # a slow probe, though, may only mean that it is busy planning

    def _become(self, state: PlannerState) -> None:
        if state is not self._state:
            self._state = state
            log.info("planner_state", state=str(state))

    async def _probe(self) -> PlannerState:
        """What `/readyz` says: TRIAL for ready, LOADING, DOWN or HUNG."""
        assert self._session is not None
        try:
            async with asyncio.timeout(min(_PROBE_S, self._timeout_s)):
                async with self._session.get(_READY_URL, allow_redirects=False) as response:
                    ready = response.status == 200
                    return PlannerState.TRIAL if ready else PlannerState.LOADING
        except TimeoutError:
            return PlannerState.HUNG
        except aiohttp.ClientError:
            return PlannerState.DOWN


class _TooLong(Exception):
    """The answer is longer than any plan."""


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > wire.MAX_REPLY_BYTES:
            raise _TooLong
    return bytes(body)


def _read(raw: bytes, request: PlanRequest) -> Planned | Detour:
    try:
        planned = wire.check(wire.decode_planned(raw, len(request.heard)), request)
    except wire.WireError:
        return Detour.JUNK
    except PlanError:
        return Detour.UNFIT
    return replace(planned, where="planner")


def _refused(status: int, raw: bytes) -> Detour:
    if status != 503:
        return Detour.ERROR
    words = {wire.Refusal.LOADING: Detour.LOADING, wire.Refusal.BUSY: Detour.BUSY}
    word = wire.refusal(raw)
    return words.get(word, Detour.ERROR) if word else Detour.ERROR
