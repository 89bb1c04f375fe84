"""Prompts ready to be played: their features, what was read from them, outcomes and cards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conductor_build.cards import Cards
from conductor_build.outcomes import Table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Deck:
    """Prompts ready to be played. P prompts, W workers, D domains."""

    prompt: Tensor
    """[P, F] raw prompt features."""
    domain: Tensor
    """[P, D] cross-fitted domain probabilities."""
    ease: Tensor
    """[P, EASE] cross-fitted."""
    score: Tensor
    """[P, W], NaN where no outcome is recorded."""
    answer: Tensor
    """[P, W] int64."""
    tokens: Tensor
    """[P, W], 1000 where a call has one price."""
    skill: Tensor
    """[W, D]"""
    cost: Tensor
    """[W, D] expected, USD per 1,000."""
    price: Tensor
    """[W], see `Cards`."""
    known: Tensor
    """[W, D] bool: domains that the worker's card was measured in."""
    comparable: Tensor
    """[P] bool: whether answers of the prompt can be compared at all."""


def build(
    prompt: Floats,
    table: Table,
    cards: Cards,
    tasks: NDArray[np.int64],
    domain: Floats,
    ease: Floats,
) -> Deck:
    """A deck of all prompts of `table`. `prompt` [P, F]; `tasks` [P] are places in the cards'
    domains; `domain` [P, D] and `ease` [P, EASE] are cross-fitted predictions."""

    def floats(values: NDArray[np.float64] | NDArray[np.float32]) -> Tensor:
        return torch.tensor(np.asarray(values), dtype=torch.float32)

    recorded: NDArray[np.bool_] = np.asarray(np.isfinite(table.tokens).any(0), np.bool_)
    tokens = np.where(recorded, np.nan_to_num(table.tokens, nan=0.0), 1000.0)
    answered: NDArray[np.bool_] = np.asarray((table.answer >= 0).any(1), np.bool_)
    comparable = np.array([answered[tasks == task].mean() > 0.5 for task in tasks])
    return Deck(
        prompt=floats(prompt),
        domain=floats(domain),
        ease=floats(ease),
        score=floats(table.score),
        answer=torch.tensor(table.answer.astype(np.int64)),
        tokens=floats(tokens),
        skill=floats(cards.skill),
        cost=floats(np.nan_to_num(cards.cost)),
        price=floats(np.nan_to_num(cards.price)),
        known=torch.tensor(cards.counts > 0),
        comparable=torch.tensor(comparable),
    )
