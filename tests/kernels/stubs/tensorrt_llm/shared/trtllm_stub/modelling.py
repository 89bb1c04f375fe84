"""The base classes of models, and how a registered one is made, filled and run.

As in the real loader, a model is made without memory, then given some, then filled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from trtllm_stub.layers import AttentionMetadata

M = TypeVar("M")
C = TypeVar("C")
MODEL_CLASS_MAPPING: dict[str, Any] = {}


def register_auto_model(name: str) -> Callable[[Any], Any]:
    def decorator(cls: Any) -> Any:
        MODEL_CLASS_MAPPING[name] = cls
        return cls

    return decorator


class LogitsProcessor(nn.Module):
    def forward(
        self, hidden_states: Tensor, lm_head: Any, attn_metadata: AttentionMetadata,
        return_context_logits: bool = False,
    ) -> Tensor:  # fmt: skip
        last = torch.tensor(attn_metadata.seq_lens).cumsum(0) - 1
        logits: Tensor = lm_head(hidden_states[last]).float()
        return logits


class DecoderModel(nn.Module):
    def __init__(self, model_config: Any) -> None:
        super().__init__()
        self.model_config = model_config


class DecoderModelForCausalLM(nn.Module, Generic[M, C]):
    def __init__(self, model: Any, *, config: Any, hidden_size: int, vocab_size: int) -> None:
        super().__init__()
        self.model_config, self.model = config, model
        dtype = config.pretrained_config.torch_dtype
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False, dtype=dtype)
        if config.pretrained_config.tie_word_embeddings:
            self.lm_head.weight = model.embed_tokens.weight
        self.logits_processor = LogitsProcessor()

    def load_weights(
        self, weights: dict[str, Any], weight_mapper: Any = None, skip_modules: Any = ()
    ) -> None:
        for name, parameter in self.named_parameters():
            if not any(one in name for one in skip_modules):
                parameter.data.copy_(_fused(weights, name))


def _fused(weights: dict[str, Any], name: str) -> Tensor:
    if "qkv_proj" not in name:
        found: Tensor = weights[name]
        return found
    return torch.cat([weights[name.replace("qkv_proj", f"{one}_proj")] for one in "qkv"])


def running(folder: Path, config: dict[str, Any]) -> Callable[[list[int]], Tensor]:
    """The registered model of that folder, reading each text anew."""
    from safetensors.torch import load_file

    dtype = getattr(torch, config["torch_dtype"])
    asked = SimpleNamespace(**{**config, "torch_dtype": dtype})
    with torch.device("meta"):
        model = MODEL_CLASS_MAPPING[config["architectures"][0]](
            SimpleNamespace(pretrained_config=asked)
        )
    model.to_empty(device="cpu")
    held: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        held |= load_file(path)
    model.load_weights(held)

    def logits(tokens: list[int]) -> Tensor:
        with torch.inference_mode():
            found: Tensor = model(
                AttentionMetadata([len(tokens)]),
                torch.tensor(tokens),
                torch.arange(len(tokens)),
            )
            return found[0].clone()

    return logits
