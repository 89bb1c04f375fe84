"""How sure a mean is: the paired bootstrap over prompts.

All columns are resampled with the same prompts, so a difference of two policies keeps what the two
have in common. Percentile intervals, as in Efron and Tibshirani, An Introduction to the Bootstrap
(1993), chapter 13. They cover the choice of prompts; not the training seed, nor answers that would
come out otherwise on another day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor.errors import ConductorError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DRAWS = 2000
LEVEL = 0.95
_AT_ONCE = 250
"""Draws counted at once: keeps the counts of 10,000 prompts in 20 MB."""


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts and its interval. All three are NaN where any prompt is unknown."""

    mean: float
    low: float
    high: float


def estimates(
    values: Floats, *, seed: int, draws: int = DRAWS, level: float = LEVEL
) -> list[Estimate]:
    """Mean and interval of every column of `values` [prompts, K].

    Raises `ConductorError` when there is no prompt, or fewer than one draw.
    """
    if not len(values) or draws < 1:
        raise ConductorError("an interval needs at least one prompt and one draw")
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(resampled_means(values, seed=seed, draws=draws), tails, axis=0)
    mean = values.mean(axis=0)
    return [Estimate(float(m), float(a), float(b)) for m, a, b in zip(mean, low, high, strict=True)]


def resampled_means(values: Floats, *, seed: int, draws: int) -> Floats:
    """Means of every column over prompts drawn with replacement, [draws, K].

    The draws depend on the seed and the number of prompts alone, so columns of two calls with both
    the same are paired too.
    """
    prompts = len(values)
    generator = np.random.default_rng(seed)
    parts = []
    for start in range(0, draws, _AT_ONCE):
        size = min(_AT_ONCE, draws - start)
        drawn = generator.integers(prompts, size=(size, prompts))
        drawn += np.arange(size)[:, None] * prompts
        counts = np.bincount(drawn.ravel(), minlength=size * prompts).reshape(size, prompts)
        parts.append(counts @ values / prompts)
    return np.concatenate(parts)
