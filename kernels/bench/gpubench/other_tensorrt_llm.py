"""TensorRT-LLM's PyTorch backend with reused blocks, free and held to the plan's lines by xgrammar.
Weights are made up.

Written from its documentation; which versions it ran on, a report says.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from gpubench.asked import Asked, asked, prompts, tell
from gpubench.hfmodel import write_folder
from gpubench.other_vllm import LINES


def main() -> None:
    """Two rows a batch."""
    from tensorrt_llm import LLM  # type: ignore[import-not-found]
    from tensorrt_llm.llmapi import (  # type: ignore[import-not-found]
        CudaGraphConfig,
        KvCacheConfig,
    )

    one = asked()
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        write_folder(folder, one.sizes.shape)
        engine = LLM(
            model=str(folder),
            load_format="dummy",
            dtype="bfloat16",
            max_batch_size=16,
            max_seq_len=2_048,
            guided_decoding_backend="xgrammar",
            cuda_graph_config=CudaGraphConfig(batch_sizes=[1, 2, 4, 8, 16]),
            kv_cache_config=KvCacheConfig(enable_block_reuse=True, free_gpu_memory_fraction=0.5),
        )
        for batch in one.batches:
            for name, grammar in (("free", None), ("xgrammar", LINES)):
                _tell(one, engine, batch, name, grammar)


def _tell(one: Asked, engine: Any, batch: int, name: str, grammar: str | None) -> None:
    from tensorrt_llm import SamplingParams
    from tensorrt_llm.llmapi import GuidedDecodingParams

    asks = [{"prompt_token_ids": ids} for ids in prompts(one, batch)]
    held = None if grammar is None else GuidedDecodingParams(grammar=grammar)

    def write(count: int) -> None:
        wanted = SamplingParams(
            max_tokens=count, temperature=0.0, ignore_eos=True, guided_decoding=held
        )
        engine.generate(asks, wanted, use_tqdm=False)

    tell(one, f"bfloat16, {name}, reused blocks", batch, write)


if __name__ == "__main__":
    main()
