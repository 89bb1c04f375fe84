"""Small random language models with a real tokenizer, for tests that need no other."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from conductor.core import PlanRequest
from conductor.plan.prompt import CHATML
from conductor_build.lm.base import Base
from conductor_build.lm.policy import Lora, PlanPolicy
from conductor_build.lm.tokens import Writer
from support.lmbundles import END, VOCABULARY, tokenizer_json
from support.plans import candidate, request

CONFIGS: dict[str, Any] = {"llama": LlamaConfig, "qwen2": Qwen2Config}
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8192,
    "eos_token_id": 1, "tie_word_embeddings": True,
}  # fmt: skip


def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json().decode())


def base(kind: str = "llama", **changes: Any) -> Base:
    """Weights are larger than a fresh model's, so that what is read makes a difference."""
    words = tokenizer()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        model: Any = AutoModelForCausalLM.from_config(CONFIGS[kind](**SIZES | changes))
        for one in model.parameters():
            one.mul_(4 if one.dim() > 1 else 1)
    model.eval().requires_grad_(False)
    return Base(model, words, CHATML, (words.token_to_id(END),), "small", "0" * 64)


@cache
def writer() -> Writer:
    return Writer.of(base(), examples=0)


def policy(kind: str = "llama", *, lora: Lora | None = None) -> PlanPolicy:
    return PlanPolicy(base(kind), writer(), lora=lora)


def requests() -> list[PlanRequest]:
    """Two, with prompts of different lengths."""
    able, cheap = candidate(price=5.0, general=0.9), candidate(general=0.4)
    return [request(able, cheap), request(cheap, able, able, question="What is 17 times 3?")]
