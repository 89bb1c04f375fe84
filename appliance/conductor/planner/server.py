"""The planner process: one engine behind a Unix socket, `POST /v1/plan` and two probes.

It has no network, no vendor key and no policy: it is told which workers may be used and answers
with a plan, which `client.py` checks again. A caller that leaves cancels its question. Questions
are never logged, and neither is the text of an engine's exception, which may quote one; but a
runner's own error, which names a kind and nothing else.

An engine that is lost, as after a fault on the GPU, ends the process: a new one is what helps, and
`serve` plans by itself until it is there.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Protocol, runtime_checkable

import orjson
import structlog
from aiohttp import web

from conductor.core import PlanRequest
from conductor.errors import ConductorError, PlanError, StartError
from conductor.planner import wire
from conductor.planner.engine import PlanEngine
from conductor.planner.lm_runner import EngineBusy, RunnerFailed, RunnerLost
from conductor.process.unixserver import Where, handed_over, serve_until_stopped, serving_app
from conductor.settings import PlannerConfig

ENGINES_GROUP = "conductor.engines"
"""Entry point group under which other packages offer engines, as callables without arguments."""
MAX_IN_FLIGHT = 8
"""Questions an engine works on at once."""
MAX_WAITING = 128
"""Questions that may wait for it; a further one is told `busy` at once."""
_BODY_S = 5.0
"""Time for a request's body to arrive; `serve` sends it in one piece."""
_DRAIN_S = 5.0
"""Time for running questions to end when the process is stopped."""
_LIMIT_SHARE = 0.9
"""Of the client's patience that a language model may use up, so that its refusal still arrives."""

log = structlog.get_logger()


@runtime_checkable
class BatchingEngine(PlanEngine, Protocol):
    """An engine that works on many questions side by side, and holds what must be let go of."""

    @property
    def at_once(self) -> int:
        """How many it takes; it queues by itself."""

    def close(self) -> None:
        """The process ends."""


def run_planner(socket: Path, settings: PlannerConfig, models: Path) -> None:
    """Serve the engine that the settings name until SIGTERM or SIGINT. `models` holds the model
    files. Raises as `load_engine` does."""
    import uvloop

    loaded = load_engine(settings, models)
    where = handed_over("planner", socket)
    with ExitStack() as stack:
        if isinstance(loaded, BatchingEngine):
            stack.callback(loaded.close)
        uvloop.run(serve_until_stopped(serving(where, loaded), where, engine=loaded.name))


def load_engine(settings: PlannerConfig, models: Path) -> PlanEngine:
    """The engine that the settings name: `default`, `pocket`, `lm`, or one that an installed
    package offers.

    Raises `StartError` for an unknown name, one offered twice, or one that cannot be loaded; for
    `pocket` and `lm` also `BundleError` and `ConfigError`.
    """
    if settings.engine == "default":
        from conductor.planner.default import DefaultEngine

        return DefaultEngine()
    if settings.engine == "pocket":
        return _pocket(settings, models)
    if settings.engine == "lm":
        return _language_model(settings)
    return _offered(settings.engine)


def _pocket(settings: PlannerConfig, models: Path) -> PlanEngine:
    try:
        from conductor.planner.pocket import PocketEngine
    except ModuleNotFoundError as error:
        raise StartError(
            f"the plan engine 'pocket' needs {error.name}: install conductor-appliance[planner]"
        ) from None
    return PocketEngine.load(settings.bundle, settings.trusted_keys, models)


def _language_model(settings: PlannerConfig) -> PlanEngine:
    if settings.bundle is None:
        raise StartError("the plan engine 'lm' has no bundle of its own: name one, planner.bundle")
    try:
        from conductor.planner.lm import Decoding, LmEngine
        from conductor.planner.lm_runner import RunnerSettings
    except ModuleNotFoundError as error:
        raise StartError(
            f"the plan engine 'lm' needs {error.name}: install conductor-appliance[planner,lm]"
        ) from None
    lm = settings.lm
    decoding = Decoding(
        settings.timeout_s * _LIMIT_SHARE, lm.max_tokens, lm.temperature, sample=lm.sample
    )
    running = RunnerSettings(
        device=lm.device,
        dtype=lm.dtype,
        threads=lm.threads,
        max_running=lm.max_running,
        max_waiting=lm.max_waiting,
        cache_tokens=lm.cache_tokens,
    )
    return LmEngine.load(settings.bundle, settings.trusted_keys, decoding, running, lm.runner)


def _offered(name: str) -> PlanEngine:
    from importlib.metadata import entry_points

    offered = entry_points(group=ENGINES_GROUP)
    found = list(offered.select(name=name))
    if len(found) != 1:
        names = ", ".join(["default", "pocket", "lm", *sorted(set(offered.names))])
        problem = "is offered by more than one package" if found else "is not installed"
        raise StartError(f"the plan engine {name!r} {problem}; choose one of: {names}")
    try:
        engine: PlanEngine = found[0].load()()
    except ConductorError:
        raise
    except Exception as error:  # noqa: BLE001  foreign code: its every failure is the same to us
        kind = type(error).__name__
        raise StartError(f"the plan engine {name!r} cannot be loaded ({kind})") from None
    return engine


def serving(where: Where, engine: PlanEngine) -> AbstractAsyncContextManager[None]:
    """Serve `engine` there while the context is open. Raises `StartError`."""
    at_once = engine.at_once if isinstance(engine, BatchingEngine) else MAX_IN_FLIGHT
    service = PlannerService(engine, max_in_flight=at_once)
    return serving_app(where, service.app(), drain_s=_DRAIN_S)


def _end_process() -> None:
    """As a service manager would: what runs may end, and the device is let go of."""
    signal.raise_signal(signal.SIGTERM)


class PlannerService:
    """The HTTP face of one engine. `when_lost` is called when it cannot work any more."""

    def __init__(
        self,
        engine: PlanEngine,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_waiting: int = MAX_WAITING,
        when_lost: Callable[[], None] = _end_process,
    ) -> None:
        self._engine, self._when_lost = engine, when_lost
        self._running = asyncio.Semaphore(max_in_flight)
        self._admitted = 0
        self._max_admitted = max_in_flight + max_waiting

    def app(self) -> web.Application:
        """A fresh application with the three routes."""
        app = web.Application(client_max_size=wire.MAX_REQUEST_BYTES)
        app.add_routes(
            [
                web.post("/v1/plan", self.plan),
                web.get("/healthz", self.health),
                web.get("/readyz", self.readiness),
            ]
        )
        return app

    async def health(self, _: web.Request) -> web.Response:
        """The process lives."""
        return _json(200, {"status": "ok"})

    async def readiness(self, _: web.Request) -> web.Response:
        """200 when the engine would answer now, else 503."""
        if await self._ready():
            return _json(200, {"status": "ready", "engine": self._engine.name})
        return _refuse(503, wire.Refusal.LOADING)

    async def plan(self, request: web.Request) -> web.Response:
        """One question. Every refusal is a word, see `wire.Refusal`."""
        if self._admitted >= self._max_admitted:
            return _refuse(503, wire.Refusal.BUSY)
        self._admitted += 1
        try:
            question = wire.decode_request(await _body(request))
            if not await self._ready():
                return _refuse(503, wire.Refusal.LOADING)
            async with self._running:
                answer = await self._ask(question)
            return web.Response(body=answer, content_type="application/json")
        except wire.WireError as fault:
            return _refuse(400, wire.Refusal.INVALID, str(fault))
        except EngineBusy:
            return _refuse(503, wire.Refusal.BUSY)
        except PlanError:
            return _refuse(422, wire.Refusal.UNPLANNABLE)
        except _EngineFailed:
            return _refuse(500, wire.Refusal.FAILED)
        finally:
            self._admitted -= 1

    async def _ask(self, question: PlanRequest) -> bytes:
        """The engine's answer, as it is sent."""
        try:
            return wire.encode_planned(await self._engine.plan(question))
        except PlanError:
            raise
        except RunnerFailed as error:
            log.error("runner_failed", request_id=question.request_id, error=str(error))
            if isinstance(error, RunnerLost):
                log.error("engine_lost", next="this process ends, for another to take its place")
                self._when_lost()
            raise _EngineFailed from None
        except Exception as error:  # noqa: BLE001  engines are plug-ins: their faults end here
            log.error("engine_failed", request_id=question.request_id, error=type(error).__name__)
            raise _EngineFailed from None

    async def _ready(self) -> bool:
        try:
            return await self._engine.ready()
        except Exception as error:  # noqa: BLE001  as above
            log.error("engine_not_ready", error=type(error).__name__)
            return False


class _EngineFailed(Exception):
    """The engine raised something that is no `PlanError`."""


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except TimeoutError:
        raise wire.WireError("the body did not arrive in time") from None
    except web.HTTPRequestEntityTooLarge:
        raise wire.WireError(f"the body is over {wire.MAX_REQUEST_BYTES} bytes") from None


def _refuse(status: int, word: wire.Refusal, message: str = "") -> web.Response:
    return _json(status, {"error": word, "message": message})


def _json(status: int, fields: dict[str, str]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(fields), content_type="application/json")
