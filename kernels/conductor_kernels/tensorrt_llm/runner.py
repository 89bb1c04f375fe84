"""The runner `tensorrt_llm`: a model folder, served by TensorRT-LLM in this process.

Requests are TensorRT-LLM's to batch and its tokens come as a stream; what may be written is the
guide's to say. A request that nobody waits for any more is aborted. What it raises, and every end
but a plan's, is `RunnerFailed`: a plan that was cut is never handed out as one that ended.

The model runs in our process, because a guide cannot follow it into another. Its usage reports are
switched off before it is imported: nothing leaves the machine on its own.

Left out: several GPUs; a salt of the cache for each tenant, since a request of ours names none.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import torch

from conductor.errors import PlanError, StartError
from conductor.planner.lm_runner import (
    EngineBusy,
    RunnerFailed,
    RunnerSettings,
    Token,
    Wanted,
)
from conductor_kernels.launch import use_bundle
from conductor_kernels.runner.lost import failure
from conductor_kernels.tensorrt_llm.arguments import arguments, window
from conductor_kernels.tensorrt_llm.counters import Counters, newest
from conductor_kernels.tensorrt_llm.folder import Folder, read_folder
from conductor_kernels.tensorrt_llm.guide import Guide, Masks
from conductor_kernels.tensorrt_llm.versions import Api, resolve

_ENVIRONMENT = {
    "TLLM_WORKER_USE_SINGLE_PROCESS": "1",
    "TRTLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
"""Read by TensorRT-LLM once, as it starts."""
_STATS_S = 0.1
"""For statistics to arrive."""


def load(folder: Path, settings: RunnerSettings) -> TensorRtRunner:
    """The model folder, ready to be asked. Raises `StartError`."""
    if settings.device == "cpu":
        raise StartError("TensorRT-LLM needs a GPU: set the runner's device to auto or cuda")
    found = read_folder(folder)
    os.environ.update(_ENVIRONMENT)
    api = resolve()
    return TensorRtRunner(api, _started(api, found, settings), found, settings)


def _started(api: Api, folder: Folder, settings: RunnerSettings) -> Any:
    """Its `LLM` over the folder. Raises `StartError`."""
    asked = arguments(folder.positions, settings)
    more: dict[str, Any] = {"kv_cache_config": api.KvCacheConfig(**asked.cache)}
    made, main = api.LLM, dict(asked.main)
    if folder.kind == "engine":
        made = api.engine_llm()
        main = {name: main[name] for name in ("skip_tokenizer_init", "trust_remote_code")}
    else:
        more["cuda_graph_config"] = api.CudaGraphConfig(**asked.graphs)
    if folder.kind == "conductor":
        _prepare_ours(api, folder.path.parent)
    try:
        return made(model=str(folder.path), **main, **more)
    except StartError:
        raise
    except Exception as error:
        kind, said = type(error).__name__, ""
        if isinstance(error, ValueError) and "invalid argument" in str(error):
            said = " of an argument that it does not know: its version differs from the ones tested"
        raise StartError(f"TensorRT-LLM {api.version} does not start ({kind}){said}") from error


def _prepare_ours(api: Api, bundle: Path) -> None:
    """Our models, and their kernels as the bundle holds them: TensorRT-LLM pins another Triton."""
    from conductor_kernels.tensorrt_llm.models import register

    register(api)
    if torch.cuda.is_available():
        use_bundle(bundle)


class _Closing:
    """One place to wait for the runner's end in an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def tell(self) -> None:
        """From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class TensorRtRunner:
    """`Runner` over one `LLM` of TensorRT-LLM."""

    def __init__(self, api: Api, llm: Any, folder: Folder, settings: RunnerSettings) -> None:
        self.vocabulary = folder.vocabulary
        self.at_once = settings.max_running + settings.max_waiting
        self._api, self._llm, self._ends = api, llm, folder.ends
        self._window = window(folder.positions, settings)
        self._masks = Masks()
        self._processor = _processor(api)
        self._under_way: set[_Closing] = set()
        self._closed = False
        self._counters = Counters()

    async def write(self, wanted: Wanted) -> AsyncGenerator[Token, None]:
        """As `Runner.write` says."""
        self._check(wanted)
        guide, closing = Guide(wanted, self._masks, self._ends[0]), _Closing()
        self._under_way.add(closing)
        output = None
        try:
            output = self._ask(wanted, guide)
            async for token in _tokens(output, guide, closing, wanted.max_tokens):
                yield token
        except RunnerFailed as error:
            raise failure(str(error)) from None
        finally:
            self._under_way.discard(closing)
            if output is not None and not output.finished:
                output.abort()

    def counters(self) -> Counters:
        """Its statistics: of the batch and the cache."""
        if not self._closed:
            self._counters = newest(self._llm.get_stats(timeout=_STATS_S), self._counters)
        return self._counters

    def close(self) -> None:
        """As `Runner.close` says."""
        if self._closed:
            return
        self._closed = True
        for one in list(self._under_way):
            one.tell()
        self._llm.shutdown()

    def _check(self, wanted: Wanted) -> None:
        if self._closed:
            raise RunnerFailed("the runner is closed")
        if len(self._under_way) >= self.at_once:
            raise EngineBusy(f"{self.at_once} plans are under way: no more may wait")
        if not all(0 <= token < self.vocabulary for token in (*wanted.prefix, *wanted.rest)):
            # On a GPU that breaks more than its own plan.
            raise RunnerFailed("the prompt holds a token that the model does not know")
        needed = len(wanted.prefix) + len(wanted.rest) + wanted.max_tokens
        if needed > self._window:
            raise PlanError(
                f"the prompt is too long: with its plan it takes up to {needed} tokens, and the "
                f"model and its cache have room for {self._window}"
            )

    def _ask(self, wanted: Wanted, guide: Guide) -> Any:
        end, *others = self._ends
        how = self._api.SamplingParams(
            max_tokens=wanted.max_tokens,
            end_id=end,
            pad_id=end,
            stop_token_ids=others or None,
            include_stop_str_in_output=True,
            top_k=1,  # the guide leaves one token; the sampler is not to think about it
            detokenize=False,
            logits_processor=self._processor(guide),
        )
        prompt = [*wanted.prefix, *wanted.rest]
        try:
            return self._llm.generate_async(prompt, sampling_params=how, streaming=True)
        except Exception as error:  # noqa: BLE001  whatever it raises
            raise RunnerFailed(f"the runner broke ({type(error).__name__})") from None


async def _tokens(output: Any, guide: Guide, closing: _Closing, most: int) -> AsyncIterator[Token]:
    """What comes, checked against what was chosen."""
    place, plan = 0, None
    while plan is None or plan.finish_reason is None:
        plan = await _next(output, closing)
        for given in plan.token_ids[place:]:
            token = guide.token(place, given)
            if token is None:
                return
            yield token
            place += 1
    if plan.finish_reason == "stop":
        hidden = guide.last(place)
        if hidden is not None:
            yield hidden
    elif plan.finish_reason != "length" or place < most:
        raise RunnerFailed(f"TensorRT-LLM ended a plan early ({plan.finish_reason})")


async def _next(output: Any, closing: _Closing) -> Any:
    """The request's completion as it then is. Raises `RunnerFailed`."""
    coming = asyncio.ensure_future(anext(output))
    try:
        await asyncio.wait({coming, closing.ended}, return_when=asyncio.FIRST_COMPLETED)
        if closing.ended.done():
            raise RunnerFailed("the runner is closed")
        return (await coming).outputs[0]
    except RunnerFailed:
        raise
    except StopAsyncIteration:
        raise RunnerFailed("TensorRT-LLM ended a plan early (no reason)") from None
    except Exception as error:  # noqa: BLE001  whatever it raises
        raise RunnerFailed(f"the runner broke ({type(error).__name__})") from None
    finally:
        coming.cancel()


def _processor(api: Api) -> Any:
    """The class of a request's logits processor: TensorRT-LLM wants one of its own kind."""

    class PlanLogits(api.LogitsProcessor):  # type: ignore[misc, name-defined]
        """Shows a guide the logits."""

        def __init__(self, guide: Guide) -> None:
            self._guide = guide

        def __call__(
            self,
            req_id: int,
            logits: Any,
            token_ids: list[list[int]],
            stream_ptr: int | None,
            client_id: int | None,
        ) -> None:
            self._guide.apply(logits, token_ids, stream_ptr)

    return PlanLogits
