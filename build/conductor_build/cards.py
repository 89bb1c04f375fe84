"""Worker cards, measured on recorded outcomes: how good at what, how wordy, at what price.

A card is all that the policy knows of a worker. It is estimated from the outcomes that are given,
so whoever trains or judges passes training or calibration prompts only. A worker with few outcomes
gets a card too: its rates are drawn towards what its outcomes as a whole say of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conductor_build.outcomes import Table

PRIOR = 4.0
"""How many outcomes the general level of a worker weighs as, in each domain."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Cards:
    """Cards of W workers over D domains, in the order of the table they were measured on."""

    names: tuple[str, ...]
    domains: tuple[str, ...]
    skill: Floats
    """[W, D] chance of a right answer."""
    tokens: Floats
    """[W, D] output tokens of an answer; 1000 where none were recorded, see `price`."""
    price: Floats
    """[W] USD per 1,000 output tokens times 1,000 requests; times tokens / 1000 it is the cost of
    1,000 requests. Where no tokens are recorded: the whole cost of a call."""
    local: NDArray[np.bool_]
    params_b: Floats
    """Size in billions of parameters; NaN unknown."""
    counts: Floats
    """[W, D] outcomes behind each skill."""

    @property
    def cost(self) -> Floats:
        """[W, D] expected cost in USD per 1,000 requests."""
        return (self.tokens * self.price[:, None] / 1000).astype(np.float32)


def measure(table: Table, domains: tuple[str, ...]) -> Cards:
    """Cards from all outcomes of a table. `domains` may hold tasks that the table lacks."""
    tasks = np.array(table.tasks)
    count, right, tokens = (np.zeros((len(table.workers), len(domains))) for _ in range(3))
    for place, domain in enumerate(domains):
        rows = tasks == domain
        seen = np.isfinite(table.score[rows])
        count[:, place] = seen.sum(0)
        right[:, place] = np.nansum(table.score[rows], 0)
        tokens[:, place] = np.nansum(table.tokens[rows], 0)
    pool = _rate(right.sum(0), count.sum(0), 0.5, 1.0)  # how hard each domain is for all
    ability = _ability(right, count, pool)
    expected = 1 / (1 + np.exp(-(_odds(pool)[None] + ability[:, None])))
    skill = (right + PRIOR * expected) / (count + PRIOR)
    price, mean_tokens = _prices(table, tokens, count)
    return Cards(
        names=tuple(worker.name for worker in table.workers),
        domains=domains,
        skill=skill.astype(np.float32),
        tokens=mean_tokens.astype(np.float32),
        price=price.astype(np.float32),
        local=np.array([worker.local for worker in table.workers]),
        params_b=np.array([worker.params_b for worker in table.workers], np.float32),
        counts=count.astype(np.float32),
    )


def _ability(
    right: NDArray[np.float64], count: NDArray[np.float64], pool: NDArray[np.float64]
) -> NDArray[np.float64]:
    """One number a worker: by how many log odds it is better than all are, over its domains."""
    ability = np.zeros(len(right))
    for _ in range(20):  # Newton's method on one parameter, with a normal prior
        chance = 1 / (1 + np.exp(-(_odds(pool)[None] + ability[:, None])))
        slope = (right - count * chance).sum(1) - ability / 4
        curve = (count * chance * (1 - chance)).sum(1) + 1 / 4
        ability = np.clip(ability + slope / curve, -6, 6)
    return ability


def _prices(
    table: Table, tokens: NDArray[np.float64], count: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    recorded: NDArray[np.bool_] = np.asarray(np.isfinite(table.tokens).any(0), np.bool_)
    usd = np.array([worker.usd_out_per_mtok for worker in table.workers])
    size = np.array([worker.params_b for worker in table.workers])
    price = np.where(recorded, usd, size / 1000)
    pool = np.where(count.sum(0) > 0, tokens.sum(0) / np.maximum(count.sum(0), 1), np.nan)
    overall = np.nanmean(pool) if np.isfinite(pool).any() else 1000.0
    pool = np.where(np.isfinite(pool), pool, overall)
    wordy = (tokens.sum(1) + 1) / ((count * pool[None]).sum(1) + 1)
    mean = (tokens + PRIOR * pool[None] * wordy[:, None]) / (count + PRIOR)
    return price, np.where(recorded[:, None], mean, 1000.0)


def _rate(
    right: NDArray[np.float64], count: NDArray[np.float64], prior: float, weight: float
) -> NDArray[np.float64]:
    return (right + prior * weight) / (count + weight)


def _odds(chance: NDArray[np.float64]) -> NDArray[np.float64]:
    clipped = np.clip(chance, 0.01, 0.99)
    return np.log(clipped / (1 - clipped))
