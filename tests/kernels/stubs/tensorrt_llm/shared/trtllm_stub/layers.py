"""The building blocks of models, in plain torch over packed sequences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class PositionEmbeddingType(Enum):
    rope_gpt_neox = 1


@dataclass
class RopeParams:
    theta: float = 10_000.0

    @staticmethod
    def from_config(config: Any) -> RopeParams:
        """As under transformers 4: `rope_parameters` means nothing to it."""
        return RopeParams(float(getattr(config, "rope_theta", 10_000.0)))


@dataclass
class PositionalEmbeddingParams:
    type: PositionEmbeddingType
    rope: RopeParams | None = None


@dataclass
class AttentionMetadata:
    seq_lens: list[int]


class Embedding(nn.Embedding):
    def __init__(
        self, num_embeddings: int, embedding_dim: int, dtype: Any = None, mapping: Any = None,
        tensor_parallel_mode: Any = None, gather_output: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(num_embeddings, embedding_dim, dtype=dtype)


class RMSNorm(nn.Module):
    def __init__(self, *, hidden_size: int, eps: float, dtype: Any = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=dtype))
        self.eps = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        return functional.rms_norm(hidden_states, self.weight.shape, self.weight, self.eps)


class DecoderLayer(nn.Module):
    pass


class Attention(nn.Module):
    def __init__(
        self,
        *,
        hidden_size: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        max_position_embeddings: int,
        bias: bool,
        pos_embd_params: PositionalEmbeddingParams | None = None,
        rope_fusion: bool | None = None,
        layer_idx: int | None = None,
        dtype: Any = None,
        dense_bias: bool | None = None,
        config: Any = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads = num_attention_heads, num_key_value_heads
        self.head_dim = hidden_size // num_attention_heads
        rows = (num_attention_heads + 2 * num_key_value_heads) * self.head_dim
        self.qkv_proj = nn.Linear(hidden_size, rows, bias=bias, dtype=dtype)
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias=bool(dense_bias), dtype=dtype)
        assert pos_embd_params is not None and pos_embd_params.rope is not None
        self.theta = pos_embd_params.rope.theta

    def forward(
        self, position_ids: Tensor, hidden_states: Tensor, attn_metadata: AttentionMetadata,
        **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        made = self.qkv_proj(hidden_states).view(len(hidden_states), -1, self.head_dim)
        split = [self.heads, self.kv_heads, self.kv_heads]
        query, key, value = (one.transpose(0, 1) for one in made.split(split, dim=1))
        query, key = self._turned(query, position_ids), self._turned(key, position_ids)
        parts, at = [], 0
        for length in attn_metadata.seq_lens:
            q, k, v = (one[None, :, at : at + length] for one in (query, key, value))
            parts.append(
                functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            )
            at += length
        attended: Tensor = self.o_proj(torch.cat(parts, 2)[0].transpose(0, 1).flatten(1))
        return attended

    def _turned(self, x: Tensor, position_ids: Tensor) -> Tensor:
        half = torch.arange(0, self.head_dim, 2).float() / self.head_dim
        angles = position_ids[:, None].float() * self.theta**-half
        first, second = x.chunk(2, -1)
        both = torch.cat((angles, angles), -1)
        return x * both.cos() + torch.cat((-second, first), -1) * both.sin()
