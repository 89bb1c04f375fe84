"""A tiny language model on disk, as a training would leave it, and exports of it."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from conductor_build.lm.base import Base, load_base
from conductor_build.lm.checkpoint import Opened, Prompting
from conductor_build.lm.export import Wanted, export_lm
from conductor_build.lm.policy import Lora, PlanPolicy
from conductor_build.lm.tokens import Writer
from support.bundles import KEY, PROVENANCE
from support.lmbundles import END, VOCABULARY, tokenizer_json

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def model(**changes: Any) -> LlamaForCausalLM:
    """Two layers; group sizes of 128 do not divide its inputs. `changes` of its configuration."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 36, "intermediate_size": 150,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 16, "tie_word_embeddings": True, "eos_token_id": 1,
        "max_position_embeddings": 8192, **changes,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return LlamaForCausalLM(LlamaConfig(**settings))


def write_model(folder: Path, tokenizer: bytes | None = None, **changes: Any) -> Path:
    """A folder in Hugging Face's form."""
    made: Any = model(**changes)
    made.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer or tokenizer_json())
    return folder


def loaded(folder: Path) -> Base:
    return load_base(str(folder), models=folder, dtype=torch.float32)


def opened(folder: Path) -> Opened:
    """As `open_checkpoint` gives it, of a folder whose prompt showed no examples."""
    base = replace(loaded(folder), name="small")
    return Opened(base, Prompting(examples=0, rounds=2), PROVENANCE, {})


def export(folder: Path, out: Path, **wanted: Any) -> Any:
    return export_lm(opened(folder), out, Wanted(**{"compared": 0, **wanted}), KEY)


def adapted(folder: Path) -> PlanPolicy:
    """A policy whose adapter has learned something."""
    base = loaded(folder)
    policy = PlanPolicy(base, Writer.of(base, examples=0), lora=Lora(rank=3, alpha=5.0))
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for one in policy.parameters():
            one.copy_(torch.randn(one.shape, generator=generator) * 0.3)
    return policy


@cache
def some_ids(count: int = 50) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (2, count), generator=torch.Generator().manual_seed(5))


def logits(base: Base) -> torch.Tensor:
    found: Any = base.model
    with torch.no_grad():
        return found(input_ids=some_ids()).logits


__all__ = ["END", "KEY", "adapted", "export", "loaded", "logits", "opened", "write_model"]
