"""The vendors, through litellm. The only module that imports it, and only when asked to.

litellm translates; it decides nothing. Retries, fallbacks, callbacks, telemetry, logging, parameter
dropping and the price-map download are all off, and each call gets an `Exchange` as its only way
out. Every foreign error ends in `translate.py`, as a `Failure`; its text goes no further.

Only the provider `openai` is offered: whatever speaks the OpenAI API, by `base_url`. Others have
litellm open connections of its own, past the exchange.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import logging
import os
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from conductor.core import Body, Failure, RemoteEndpoint, Worker
from conductor.egress.translate import translated
from conductor.errors import StartError, WorkerError

if TYPE_CHECKING:
    import httpx

    from conductor.egress.exchange import Exchange
    from conductor.secretrefs import Secret

BARRED_VERSIONS = frozenset({"1.82.7", "1.82.8", "1.107.0"})
"""1.82.7 and 1.82.8 carried a credential stealer (MAL-2026-2144)."""

PROVIDERS = frozenset({"openai"})
DEFAULT_BASE_URL = "https://api.openai.com/v1"

_PROOF_S = 10.0
_NOT_THE_KEY = "held-by-the-exchange"


class Provider(Protocol):
    """The seam to the vendors: litellm, or a function in a test."""

    async def complete(self, worker: Worker, body: Body) -> Body:
        """A whole answer. Raises `WorkerError`."""

    def stream(
        self, worker: Worker, body: Body
    ) -> AbstractAsyncContextManager[AsyncIterator[Body]]:
        """A streamed answer, entered when the vendor's head has come. Its iterator ends only at a
        true end; both raise `WorkerError`. Leaving the context aborts the vendor's call."""


def load_litellm() -> Any:
    """Import litellm with everything off that it would do by itself.

    Raises `StartError` when it is absent or a barred version.
    """
    try:
        version = importlib.metadata.version("litellm")
    except importlib.metadata.PackageNotFoundError:
        raise StartError(
            "litellm is not installed here: install the 'egress' extra, or set mode: local-only"
        ) from None
    if version in BARRED_VERSIONS:
        raise StartError(f"litellm {version} is barred: install the pinned version")
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # or else it reads a .env file
    os.environ["REPEATED_STREAMING_CHUNK_LIMIT"] = str(2**31)  # a table may well repeat itself
    gc.disable()  # some hundred thousand objects that stay: to look for garbage takes a quarter
    try:
        import litellm
    finally:
        gc.enable()
        gc.freeze()
    from pydantic.warnings import PydanticDeprecationWarning

    # litellm reads a deprecated attribute for every chunk: nothing an operator can act on.
    warnings.filterwarnings("ignore", category=PydanticDeprecationWarning)
    # Where an answer has another form than litellm expects, this one quotes it.
    warnings.filterwarnings("ignore", message=r"(?s).*Pydantic", category=UserWarning)
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.drop_params = False
    litellm.num_retries = 0
    litellm.cache = None
    for name in ("callbacks", "input_callback", "success_callback", "failure_callback"):
        setattr(litellm, name, [])
    litellm.set_verbose = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai", "httpx", "httpcore"):
        # They log bodies, addresses or both; a level, since it holds for their children too.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


class LiteLLMProvider:
    """Calls remote workers. `keys` holds the vendor key of each, by worker id.

    Raises `StartError` for a provider that is not offered. Use as an async context.
    """

    def __init__(self, workers: tuple[Worker, ...], keys: Mapping[str, Secret]) -> None:
        self._workers = workers
        self._keys = keys
        self._litellm = load_litellm()
        self._aborting: set[asyncio.Task[None]] = set()
        self._pools: dict[str, httpx.AsyncBaseTransport] = {}
        for worker in workers:
            self._pools[worker.id] = _connections(worker)

    async def __aenter__(self) -> LiteLLMProvider:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*self._aborting)
        for pool in self._pools.values():
            await pool.aclose()

    async def complete(self, worker: Worker, body: Body) -> Body:
        """See `Provider`."""
        exchange = self._exchange(worker, stream=False)
        try:
            async with asyncio.timeout(worker.limits.total_s):
                answer = await self._ask(exchange, worker, body)
            return _plain(answer, exchange)
        except Exception as error:  # noqa: BLE001  foreign code: `translated` tells faults apart
            raise translated(error, exchange) from None
        finally:
            await self._abort(exchange)

    @asynccontextmanager
    async def stream(self, worker: Worker, body: Body) -> AsyncIterator[AsyncIterator[Body]]:
        """See `Provider`."""
        exchange = self._exchange(worker, stream=True)
        deadline = asyncio.get_running_loop().time() + worker.limits.total_s
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    answer = await self._ask(exchange, worker, body)
            except Exception as error:  # noqa: BLE001  as above
                raise translated(error, exchange) from None
            async with aclosing(_chunks(answer, exchange, deadline)) as chunks:
                yield chunks
        finally:
            await self._abort(exchange)

    async def _abort(self, exchange: Exchange) -> None:
        """In a task of its own: a caller's leaving can raise here and then cancel us as well, and
        an interrupted abort would leave the vendor sending."""
        task = asyncio.create_task(exchange.abort())
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)
        await asyncio.shield(task)

    async def prove(self) -> None:
        """Make litellm answer for every worker from memory, and so load all of itself.

        Raises `StartError` when a call does not go through its exchange: then, and for whatever
        reason, litellm would open a connection of its own.
        """
        with warnings.catch_warnings():
            # litellm loads most of itself on first use, warning of its own models as it does.
            warnings.simplefilter("ignore")
            for worker in {worker.model: worker for worker in self._workers}.values():
                for stream in (False, True):
                    if not await self._proved(worker, stream=stream):
                        raise StartError(
                            f"litellm cannot be held to one connection for worker {worker.id}: "
                            "egress does not start; check its model name and the litellm installed"
                        )

    async def _proved(self, worker: Worker, *, stream: bool) -> bool:
        from conductor.egress.exchange import Exchange, memory, origin_of

        asked: list[str] = []
        origin = origin_of(_base_url(worker))
        exchange = Exchange(memory(asked), worker, origin, _NOT_THE_KEY, stream=stream)
        message = {"role": "user", "content": "ping"}
        try:
            answer = await self._ask(
                exchange, worker, {"model": worker.model, "messages": [message], "stream": stream}
            )
            if stream:
                deadline = asyncio.get_running_loop().time() + _PROOF_S
                text = [chunk async for chunk in _chunks(answer, exchange, deadline)]
            else:
                text = [_plain(answer, exchange)]
        except Exception:  # noqa: BLE001  foreign code: any fault means the same here
            return False
        return asked == ["POST"] and b"pong" in orjson.dumps(text)

    def _exchange(self, worker: Worker, *, stream: bool) -> Exchange:
        from conductor.egress.exchange import Exchange, origin_of

        key = self._keys[worker.id].reveal()
        origin = origin_of(_base_url(worker))
        return Exchange(self._pools[worker.id], worker, origin, key, stream=stream)

    async def _ask(self, exchange: Exchange, worker: Worker, body: Body) -> Any:
        import httpx
        import openai

        # Any: the SDK takes both generations of httpx, its annotation knows the newer one.
        http: Any = httpx.AsyncClient(transport=exchange, trust_env=False, follow_redirects=False)
        client = openai.AsyncOpenAI(
            api_key=_NOT_THE_KEY, base_url=_base_url(worker), max_retries=0, http_client=http
        )
        return await self._litellm.acompletion(
            **body,
            custom_llm_provider="openai",
            client=client,
            api_key=_NOT_THE_KEY,
            api_base=_base_url(worker),
            timeout=worker.limits.total_s,
            max_retries=0,
            num_retries=0,
            drop_params=False,
            # What a model supports is for the vendor to say, not for a table of model names.
            allowed_openai_params=sorted(body.keys() - {"model", "messages", "stream"}),
            _skip_responses_api_bridge=True,
        )


def _base_url(worker: Worker) -> str:
    assert isinstance(worker.endpoint, RemoteEndpoint)
    return worker.endpoint.base_url or DEFAULT_BASE_URL


def _connections(worker: Worker) -> httpx.AsyncBaseTransport:
    from conductor.egress.exchange import connections

    assert isinstance(worker.endpoint, RemoteEndpoint)
    if worker.endpoint.provider not in PROVIDERS:
        raise StartError(
            f"worker {worker.id}: provider must be one of {', '.join(sorted(PROVIDERS))}; most "
            "vendors offer an OpenAI-compatible address: name it in base_url"
        )
    return connections()


# -- answers ----------------------------------------------------------------------------------


def _plain(answer: Any, exchange: Exchange) -> Body:
    body = _dump(answer, exchange)
    choices = body.get("choices")
    if not choices or not all("message" in choice for choice in choices):
        raise WorkerError(Failure.MALFORMED, "no choices")
    return body


async def _chunks(answer: Any, exchange: Exchange, deadline: float) -> AsyncGenerator[Body, None]:
    """Chunks up to a true end, which litellm does not tell from a made-up one."""
    open_choices: dict[int, bool] = {}
    began = False
    try:
        chunks = aiter(answer)
        while True:
            async with asyncio.timeout_at(deadline):
                chunk = _dump(await anext(chunks), exchange)
            del answer.chunks[:-2]  # litellm would keep them all, for a log that is off
            for choice in chunk["choices"]:
                open_choices[choice["index"]] = choice["finish_reason"] is None
            if not (exchange.done or exchange.finished or any(open_choices.values())):
                break  # made up: no finish reason has come
            if not exchange.answered:
                raise WorkerError(Failure.MALFORMED, "a stream without a choice")
            yield chunk
            began = True
    except StopAsyncIteration:
        pass
    except Exception as error:  # noqa: BLE001  as above
        raise translated(error, exchange, began=began) from None
    all_finished = exchange.finished and not any(open_choices.values())
    if not (exchange.done or all_finished):
        raise WorkerError(Failure.CUT, "end without a finish reason", began=began)


def _dump(answer: Any, exchange: Exchange) -> Body:
    """Without what litellm adds of its own; a usage that the vendor never stated is made up."""
    body: Body = answer.model_dump(exclude_none=True, warnings=False)
    body.pop("provider_specific_fields", None)
    if not exchange.usage:
        body.pop("usage", None)
    for choice in body.get("choices", ()):
        choice.pop("provider_specific_fields", None)
        choice.setdefault("finish_reason", None)
        for part in ("delta", "message"):
            if part in choice:
                choice[part].pop("provider_specific_fields", None)
    return body
