"""The two ends of the scale: a worker drawn at random, and one picked with the outcome in hand.

Nobody reaches the oracle: among many workers one is often right by luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.plays import Plays, Records

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats, Rows
    from conductor_build.outcomes import Table


@dataclass(frozen=True)
class Random:
    """One worker, each as likely as any other: the expectation, so that no draw has to be lucky."""

    name: str = "random"

    def play(self, table: Table, rows: Rows) -> Plays:
        records = Records.of(table, rows)
        return Plays(records.score.mean(axis=0), records.cost.mean(axis=0))


@dataclass(frozen=True)
class Oracle:
    """The single worker of highest utility on each prompt, of equal ones the cheapest."""

    lam: float
    name: str = "oracle"

    def play(self, table: Table, rows: Rows) -> Plays:
        records = Records.of(table, rows)
        return _pick(records, records.score - self.lam * records.cost)


@dataclass(frozen=True)
class CheapestRight:
    """The cheapest of the workers with the highest score on each prompt, whatever lambda is."""

    name: str = "oracle_cheapest_right"

    def play(self, table: Table, rows: Rows) -> Plays:
        records = Records.of(table, rows)
        return _pick(records, records.score)


def _pick(records: Records, value: Floats) -> Plays:
    """The cheapest of the best by `value`; unknown where any worker's outcome is."""
    best = value >= value.max(axis=0) - 1e-12
    chosen = np.where(best, records.cost, np.inf).argmin(axis=0)
    prompts = np.arange(len(chosen))
    unknown = np.where(np.isnan(value + records.cost).any(axis=0), np.nan, 0.0)
    return Plays(records.score[chosen, prompts] + unknown, records.cost[chosen, prompts] + unknown)
