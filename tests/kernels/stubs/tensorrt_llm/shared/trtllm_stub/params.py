"""The records that requests and engines are asked with: documented names and defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


class LogitsProcessor(ABC):
    @abstractmethod
    def __call__(
        self,
        req_id: int,
        logits: Any,
        token_ids: list[list[int]],
        stream_ptr: int | None,
        client_id: int | None,
    ) -> None: ...


@dataclass(kw_only=True)
class SamplingParams:
    n: int = 1
    max_tokens: int = 32
    end_id: int | None = None
    pad_id: int | None = None
    seed: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    stop: Any = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    logits_processor: Any = None
    apply_batched_logits_processor: bool = False
    guided_decoding: Any = None
    ignore_eos: bool = False
    detokenize: bool = True
    logprobs: int | None = None


@dataclass(kw_only=True)
class KvCacheConfig:
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    free_gpu_memory_fraction: float | None = 0.9
    host_cache_size: int | None = None
    enable_partial_reuse: bool = True
    copy_on_partial_reuse: bool = True
    dtype: str = "auto"
    tokens_per_block: int = 32


@dataclass(kw_only=True)
class CudaGraphConfig:
    batch_sizes: list[int] | None = None
    max_batch_size: int = 0
    enable_padding: bool = False


@dataclass
class CompletionOutput:
    index: int
    token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: Any = None
