"""How vLLM finds the mask: the entry point `conductor_plan` of its group `vllm.logits_processors`.

Written to the interface of vLLM's V1 logits processors, of the versions that the locked TRL takes;
vLLM itself needs a GPU and is not among our dependencies. Requests without our key are left alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from vllm.v1.sample.logits_processor import (  # type: ignore[import-not-found]
    AdapterLogitsProcessor,
)

from conductor.plan.automaton import compile
from conductor.plan.tokens import of_tokenizer
from conductor_build.lm.sampling import Masks
from conductor_build.lm.tokens import ids_of
from conductor_build.lm.vllm_plans import KEY, Masked, masked
from conductor_build.lm.walk import Spelling


class PlanLogits(AdapterLogitsProcessor):  # type: ignore[misc]
    """Masks the requests that ask for a plan."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        config = vllm_config.model_config
        folder, size = Path(config.tokenizer), config.get_vocab_size()
        self._masks = Masks(size, device)
        self._spelling = cache(lambda eos: _spelling(folder / "tokenizer.json", size, eos))

    def is_argmax_invariant(self) -> bool:
        """Never: it hides tokens."""
        return False

    def new_req_logits_processor(self, params: Any) -> Masked | None:
        """The mask of a request, if it asks for one."""
        asked = (params.extra_args or {}).get(KEY)
        return None if asked is None else masked(asked, self._spelling, self._masks)


def _spelling(path: Path, size: int, eos: tuple[int, ...]) -> Spelling:
    tokenizer = Tokenizer.from_file(str(path))
    tables = compile(of_tokenizer(tokenizer.to_str().encode(), size), eos)
    return Spelling(tables, lambda text: ids_of(tokenizer, text))
