"""How the next tokens of several sequences are to be chosen, as the heads take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conductor_kernels.ops.automaton import MOST_ROWS

GREEDY = -1
"""The seed of whoever takes the likeliest token."""
_SEEDS = (1 << 62) - 1
"""Bits of a seed that count."""


def seed_of(seed: int | None) -> int:
    """A plan's seed as the ops take it."""
    return GREEDY if seed is None else seed & _SEEDS


@dataclass(frozen=True, eq=False)
class Drawing:
    """Of B sequences. What is drawn hangs on seed and count alone, so on no other sequence."""

    bits: Tensor
    """[B, W] int32: token i is allowed by bit i % 32 of word i // 32."""
    rows: Tensor
    """[B, MOST_ROWS] int32: the allowed tokens, where they are few;"""
    count: Tensor
    """[B] int32: how many those are, -1: not listed."""
    temperatures: Tensor
    """[B] float32"""
    seeds: Tensor
    """[B] int64, or `GREEDY`."""
    drawn: Tensor
    """[B] int32: tokens that were chosen before."""

    def to(self, device: torch.device) -> Drawing:
        """The same there."""
        return Drawing(*(one.to(device) for one in vars(self).values()))


@dataclass(frozen=True)
class Ask:
    """One sequence that the host's automaton asks for a token."""

    allowed: bytes
    """As `Automaton.allowed` gives it."""
    temperature: float
    seed: int | None
    drawn: int


def drawing_of(asks: Sequence[Ask], vocabulary: int) -> Drawing:
    """On the CPU."""
    words = -(-vocabulary // 32)
    return Drawing(
        torch.stack([_words(one.allowed, words) for one in asks]),
        torch.zeros(len(asks), MOST_ROWS, dtype=torch.int32),
        torch.full((len(asks),), -1, dtype=torch.int32),
        torch.tensor([one.temperature for one in asks]),
        torch.tensor([seed_of(one.seed) for one in asks]),
        torch.tensor([one.drawn for one in asks], dtype=torch.int32),
    )


def _words(mask: bytes, words: int) -> Tensor:
    padded = mask.ljust(4 * words, b"\0")[: 4 * words]
    return torch.frombuffer(bytearray(padded), dtype=torch.int32)
