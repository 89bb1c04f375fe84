"""Where batches are drawn from: the recipe's tables, each over its pool and over all workers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from conductor_build.cards import Cards
from conductor_build.outcomes import OutcomesError, Table
from conductor_build.pocket.deck import Deck
from conductor_build.recipe import TableUse
from conductor_build.sources import Sources

FEWEST_RECORDED = 0.4
"""Share of a table's prompts that a worker must have outcomes for to be drawn from it."""
_OF_PROMPTS = ("prompt", "domain", "ease", "score", "answer", "tokens", "comparable")


@dataclass(frozen=True, eq=False)
class Plot:
    """Rows and columns of the joined table that batches are drawn from, and how often."""

    rows: NDArray[np.int64]
    columns: list[int]
    share: float


def plots(sources: Sources, table: Table, cards: Cards) -> list[Plot]:
    """For each of the recipe's tables its pool, and all of its workers that can be played."""
    found, start = [], 0
    for part in sources.parts:
        rows = np.arange(start, start + len(part.table.prompts))
        start += len(rows)
        playable = _playable(part.use, table, cards, rows)
        names = [name for name in part.use.pool if name in part.table.names]
        pool = [table.names.index(name) for name in names]
        missing = [name for name, place in zip(names, pool, strict=True) if place not in playable]
        if missing:
            raise OutcomesError(f"{missing[0]!r} of a pool has no price, or too few outcomes")
        share = part.use.pool_share if len(pool) > 1 else 0.0
        for columns, own in ((pool, share), (playable, 1 - share)):
            if own:
                found.append(Plot(rows, columns, own * part.use.share))
    return found


def _playable(use: TableUse, table: Table, cards: Cards, rows: NDArray[np.int64]) -> list[int]:
    often = np.isfinite(table.score[rows]).mean(0) > FEWEST_RECORDED
    found = np.flatnonzero(often & np.isfinite(cards.price))
    if len(found) < 2:
        raise OutcomesError(
            f"{use.name!r} has fewer than two workers with a price, and with outcomes for "
            f"{FEWEST_RECORDED:.0%} of its prompts: there is nothing to choose from"
        )
    return [int(place) for place in found]


@dataclass(frozen=True, eq=False)
class Ground:
    """Prompts of one table over some of its workers: where a batch is drawn from."""

    deck: Deck
    columns: tuple[int, ...]
    share: float


def ground(deck: Deck, plot: Plot) -> Ground:
    """The plot's prompts, but for those that none of its workers answered."""
    answered = torch.isfinite(deck.score[plot.rows][:, plot.columns]).any(1).numpy()
    index = torch.tensor(plot.rows[answered])
    own = {name: getattr(deck, name)[index] for name in _OF_PROMPTS}
    return Ground(replace(deck, **own), tuple(plot.columns), plot.share)
