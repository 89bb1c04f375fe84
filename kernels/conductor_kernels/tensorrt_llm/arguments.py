"""Our settings as arguments of TensorRT-LLM's `LLM`, and as a file for `trtllm-serve`.

Why these: reuse of blocks keeps the prompt's fixed part, which is padded to blocks of 32; graphs
are recorded for every batch that plans come in; the overlap scheduler would ask for a token before
the one in front of it is known, so it is off; a long prompt is read in pieces beside what runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conductor.planner.lm_runner import RunnerSettings

BLOCK_TOKENS = 32
"""Of the cache: the prompt's fixed part is padded to a multiple of it."""
MOST_AT_ONCE = 16
"""Largest batch that a graph is recorded for: more than the ops are made for gains nothing."""
_GPU_SHARE = 0.9
"""Of the free memory, at most; the cache's size in tokens is what normally limits it."""


@dataclass(frozen=True)
class Arguments:
    """Plain values, by the names of TensorRT-LLM; the two parts are records of its own there."""

    main: dict[str, Any]
    cache: dict[str, Any]
    """`kv_cache_config`"""
    graphs: dict[str, Any]
    """`cuda_graph_config`"""

    def as_config(self) -> dict[str, Any]:
        """As the file that `trtllm-serve --config` reads."""
        return {**self.main, "kv_cache_config": self.cache, "cuda_graph_config": self.graphs}


def window(positions: int, settings: RunnerSettings) -> int:
    """Most tokens of a prompt and its plan."""
    return min(positions, settings.cache_tokens)


def arguments(positions: int, settings: RunnerSettings) -> Arguments:
    """For a model of so many positions."""
    graphs = list(range(1, min(MOST_AT_ONCE, settings.max_running) + 1))
    blocks = -(-max(settings.prefill_tokens, settings.max_running) // BLOCK_TOKENS)
    return Arguments(
        main={
            "dtype": settings.dtype,
            "max_batch_size": settings.max_running,
            "max_seq_len": window(positions, settings),
            "max_num_tokens": blocks * BLOCK_TOKENS,
            "enable_chunked_prefill": True,
            "disable_overlap_scheduler": True,
            "enable_iter_perf_stats": True,
            "skip_tokenizer_init": True,
            "trust_remote_code": False,
        },
        cache={
            "enable_block_reuse": True,
            "tokens_per_block": BLOCK_TOKENS,
            "max_tokens": settings.cache_tokens,
            "free_gpu_memory_fraction": _GPU_SHARE,
        },
        graphs={"batch_sizes": graphs, "enable_padding": True},
    )
