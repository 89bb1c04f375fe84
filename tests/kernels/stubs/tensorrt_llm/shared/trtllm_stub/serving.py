"""Requests, the thread that serves them, and the tiny models that it runs."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trtllm_stub import modelling
from trtllm_stub.params import CompletionOutput, KvCacheConfig, SamplingParams

KNOWN = {
    "cuda_graph_config", "disable_overlap_scheduler", "attn_backend", "sampler_type",
    "torch_compile_config", "enable_autotuner", "enable_iter_perf_stats", "return_perf_metrics",
    "checkpoint_format", "orchestrator_type",
}  # fmt: skip
MADE: list[Any] = []
"""Every `LLM`, for tests to look at."""


class RequestOutput:
    """A request under way, and its stream."""

    def __init__(self, request_id: int, prompt: list[int], params: SamplingParams) -> None:
        self.request_id, self.prompt_token_ids, self.params = request_id, prompt, params
        self.outputs = [CompletionOutput(0, [])]
        self.finished = False
        self.dropped = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[list[int], str | None]] = asyncio.Queue()

    def abort(self) -> None:
        self.dropped.set()

    def aborted(self) -> bool:
        return self.dropped.is_set()

    def tell(self, tokens: list[int], reason: str | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (list(tokens), reason))

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self.finished:
            raise StopAsyncIteration
        tokens, reason = await self._queue.get()
        self.outputs[0] = CompletionOutput(0, tokens, reason)
        self.finished = reason is not None
        return self


class LLM:
    """The class of the PyTorch backend."""

    SHOWS_END = True

    def __init__(
        self,
        model: str,
        tokenizer: Any = None,
        tokenizer_mode: str = "auto",
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        batched_logits_processor: Any = None,
        guided_decoding_backend: Any = None,
        max_batch_size: int | None = None,
        max_input_len: int | None = None,
        max_seq_len: int | None = None,
        max_num_tokens: int | None = 8192,
        enable_chunked_prefill: bool = False,
        kv_cache_config: KvCacheConfig | None = None,
        **kwargs: Any,
    ) -> None:
        for name in kwargs.keys() - KNOWN:
            raise ValueError(f"LLM got invalid argument: {name}")
        self.asked = {**kwargs, "max_batch_size": max_batch_size, "max_seq_len": max_seq_len}
        self.kv_cache_config = kv_cache_config
        self.pieces = max_num_tokens or 8192
        self.calls = 0
        self._next_id = 0
        self._logits = opened(Path(model))
        self._running: list[tuple[RequestOutput, list[int]]] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="trtllm stub", daemon=True)
        self._thread.start()
        MADE.append(self)

    def generate_async(
        self,
        inputs: list[int],
        sampling_params: SamplingParams | None = None,
        lora_request: Any = None,
        prompt_adapter_request: Any = None,
        streaming: bool = False,
        kv_cache_retention_config: Any = None,
        disaggregated_params: Any = None,
        scheduling_params: Any = None,
        cache_salt: str | None = None,
    ) -> RequestOutput:
        assert streaming
        self._next_id += 1
        made = RequestOutput(self._next_id, list(inputs), sampling_params or SamplingParams())
        with self._lock:
            self._running.append((made, []))
        return made

    def get_stats(self, timeout: float | None = 2) -> list[dict[str, Any]]:
        cache = {"maxNumBlocks": 64, "usedNumBlocks": 3 * len(self._running), "reusedBlocks": 7}
        return [{"numActiveRequests": 0}, {
            "numActiveRequests": len(self._running), "kvCacheStats": cache,
        }]  # fmt: skip

    def shutdown(self) -> None:
        self._stopped.set()
        self._thread.join(10)

    # -- the thread -------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stopped.wait(0 if self._running else 0.002):
            with self._lock:
                now = list(self._running)
            for one in now:
                if self._step(*one) is not None:
                    with self._lock:
                        self._running.remove(one)

    def _step(self, output: RequestOutput, tokens: list[int]) -> str | None:
        reason = "cancelled" if output.dropped.is_set() else self._grown(output, tokens)
        shown = tokens[:-1] if reason == "stop" and not self.SHOWS_END else tokens
        output.tell(shown, reason)
        return reason

    def _grown(self, output: RequestOutput, tokens: list[int]) -> str | None:
        params, prompt = output.params, output.prompt_token_ids
        ends = range(self.pieces, len(prompt), self.pieces) if not tokens else ()
        for end in (*ends, None):
            logits = self._logits([*prompt[:end], *tokens]).view(1, 1, -1)
            if params.logits_processor is not None:
                self.calls += 1
                params.logits_processor(output.request_id, logits, [[*prompt, *tokens]], None, None)
        tokens.append(int(logits.argmax()))
        if tokens[-1] == params.end_id or tokens[-1] in (params.stop_token_ids or ()):
            return "stop"
        return "length" if len(tokens) >= params.max_tokens else None


def opened(folder: Path) -> Callable[[list[int]], torch.Tensor]:
    """From tokens to the logits of the next: by an out-of-tree model, by transformers, or by lot
    where there are no weights."""
    config = json.loads((folder / "config.json").read_text())
    if not list(folder.glob("*.safetensors")):
        return lambda tokens: by_lot(tokens, config["vocab_size"])
    if config["architectures"][0] in modelling.MODEL_CLASS_MAPPING:
        return modelling.running(folder, config)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def logits(tokens: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = model(torch.tensor([tokens])).logits[0, -1].float().clone()
            return found

    return logits


def by_lot(tokens: list[int], size: int) -> torch.Tensor:
    """The same tokens give the same logits."""
    generator = torch.Generator().manual_seed(random.Random(str(tokens)).randrange(2**31))
    return torch.randn(size, generator=generator)
