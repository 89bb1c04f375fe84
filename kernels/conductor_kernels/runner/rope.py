"""Cosines and sines of rotary position embeddings, stretched as a checkpoint asks for.

default   Su et al., "RoFormer", arXiv:2104.09864
linear    positions divided by a factor (arXiv:2306.15595)
llama3    long waves divided, short ones kept, a ramp between (Llama 3.1)
yarn      the same by number of turns, and a temperature (arXiv:2309.00071)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from conductor_kernels.runner.shape import Rope


def rotations(rope: Rope, head_dim: int, positions: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, each [positions, head_dim] in float32; the two halves of a
    head turn together, so both halves of a row are equal."""
    angles = torch.outer(torch.arange(positions).float(), frequencies(rope, head_dim))
    both = torch.cat((angles, angles), dim=-1)
    scale = attention_factor(rope)
    return both.cos() * scale, both.sin() * scale


def frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Radians that each pair turns from one position to the next: [head_dim / 2], float32."""
    plain = rope.theta ** -(torch.arange(0, head_dim, 2).float() / head_dim)
    if rope.kind == "default":
        return plain
    if rope.kind == "linear":
        return plain / rope.factor
    kept = _llama3_kept(rope, plain) if rope.kind == "llama3" else _yarn_kept(rope, head_dim)
    return kept * plain + (1 - kept) * plain / rope.factor


def attention_factor(rope: Rope) -> float:
    """What cosines and sines are multiplied by: YaRN's temperature, paper's equation 22."""
    if rope.kind != "yarn":
        return 1.0
    if rope.attention is not None:
        return float(rope.attention)
    return 0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0


def _llama3_kept(rope: Rope, plain: Tensor) -> Tensor:
    """Share of each frequency that stays: by its turns within the trained length."""
    turns = rope.trained_positions * plain / (2 * math.pi)
    return ((turns - rope.low) / (rope.high - rope.low)).clamp(0, 1)


def _yarn_kept(rope: Rope, head_dim: int) -> Tensor:
    """The same as a ramp over pairs, whose ends are the pairs that make `high` and `low` turns."""
    last = head_dim - 1
    first = max(math.floor(_pair_of(rope.high, rope, head_dim)), 0)
    end = min(math.ceil(_pair_of(rope.low, rope, head_dim)), last)
    width = max(end - first, 1e-3)
    return 1 - ((torch.arange(head_dim // 2).float() - first) / width).clamp(0, 1)


def _pair_of(turns: float, rope: Rope, head_dim: int) -> float:
    """The pair, as a real number, that makes so many turns within the trained length."""
    wave = rope.trained_positions / (turns * 2 * math.pi)
    return head_dim * math.log(wave) / (2 * math.log(rope.theta))
