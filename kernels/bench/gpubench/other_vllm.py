"""vLLM with cached prefixes, free and held to the plan's lines by xgrammar. Weights are made up.

Written from its documentation; which versions it ran on, a report says.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from gpubench.asked import Asked, asked, prompts, tell
from gpubench.hfmodel import write_folder

LINES = r'root ::= ([0-6] " " ("q" | "*" | "-") " " [ -~]+ "\n")+'
"""Lines like a plan's. The class of letters stands inline, which xgrammar masks fastest."""


def main() -> None:
    """Two rows a batch."""
    from vllm import LLM  # type: ignore[import-not-found]

    one = asked()
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        write_folder(folder, one.sizes.shape)
        engine = LLM(
            model=str(folder),
            load_format="dummy",
            dtype="bfloat16",
            max_model_len=2_048,
            max_num_seqs=16,
            enable_prefix_caching=True,
            gpu_memory_utilization=0.8,
        )
        for batch in one.batches:
            for name, grammar in (("free", None), ("xgrammar", LINES)):
                _tell(one, engine, batch, name, grammar)


def _tell(one: Asked, engine: Any, batch: int, name: str, grammar: str | None) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams  # type: ignore[import-not-found]

    asks = [{"prompt_token_ids": ids} for ids in prompts(one, batch)]
    held = None if grammar is None else StructuredOutputsParams(grammar=grammar)

    def write(count: int) -> None:
        wanted = SamplingParams(
            temperature=0.0, max_tokens=count, ignore_eos=True, structured_outputs=held
        )
        engine.generate(asks, wanted, use_tqdm=False)

    tell(one, f"bfloat16, {name}, cached prefix", batch, write)


if __name__ == "__main__":
    main()
