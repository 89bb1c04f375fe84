"""The whole field of baselines over one pool: chosen and fitted on some prompts, played on others.

Each `Part` names the prompts it is for and holds the training prompts that alone decide about them.
With a training table there is one part; in cross-fitting one a fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.bounds import CheapestRight, Oracle, Random
from conductor_build.baselines.choose import ALL_KINDS, Tally, searched, tally
from conductor_build.baselines.fixed import CASCADE, SINGLE, VOTE, Fixed, Single
from conductor_build.baselines.plays import Plays, Records, Strategy
from conductor_build.baselines.routers import (
    Forecast,
    Neighbourhood,
    Router,
    logistic_forecast,
    neighbourhood,
)

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats, Ints, Rows
    from conductor_build.outcomes import Table

CHOSEN = {
    "best_single": ((SINGLE,), False),
    "best_single_per_task": ((SINGLE,), True),
    "best_vote": ((VOTE,), False),
    "best_cascade": ((CASCADE,), False),
    "best_cascade_per_task": ((CASCADE,), True),
    "best_fixed": (ALL_KINDS, False),
    "best_fixed_per_task": (ALL_KINDS, True),
}
"""Baselines that are a choice among fixed strategies: of which kinds, and whether by task."""


@dataclass(frozen=True, eq=False)
class Part:
    """Judged prompts, and the training that decides about them.

    `rows` are positions in the judged table. `train` holds the pool's workers alone, with every
    outcome recorded; `known` [P, E] are its embeddings and `folds` [P] divide it for inner choices.
    """

    rows: Ints
    train: Table
    known: Floats
    folds: Ints


@dataclass(frozen=True, eq=False)
class Assigned:
    """A baseline that was chosen: a fixed strategy for every judged prompt, by part and task.

    `of` [P] gives each row of the judged table its place in `strategies`.
    """

    name: str
    strategies: tuple[Fixed, ...]
    of: Ints

    def play(self, table: Table, rows: Rows) -> Plays:
        index = np.asarray(rows, dtype=np.int64)
        score, cost = np.empty(len(index)), np.empty(len(index))
        for number in np.unique(self.of[index]):
            here = self.of[index] == number
            plays = self.strategies[number].play(table, index[here])
            score[here], cost[here] = plays.score, plays.cost
        return Plays(score, cost)

    def shares(self, rows: Rows) -> dict[str, float]:
        """Which strategy stands behind the name, and on which share of the prompts."""
        numbers, counts = np.unique(self.of[np.asarray(rows)], return_counts=True)
        pairs = sorted(zip(counts, numbers, strict=True), key=lambda pair: -pair[0])
        return {self.strategies[n].name: float(count / len(rows)) for count, n in pairs}


@dataclass(frozen=True, eq=False)
class Field:
    """All baselines, ready for any lambda. Made by `fit`."""

    workers: tuple[str, ...]
    tasks: tuple[str, ...]
    parts: tuple[Part, ...]
    tallies: tuple[Tally, ...]
    logistic: Forecast
    hoods: tuple[Neighbourhood, ...]

    @classmethod
    def fit(
        cls, judged: Table, embeddings: Floats, parts: Sequence[Part], lambdas: Sequence[float]
    ) -> Field:
        """Choose and fit everything that does not depend on lambda.

        `judged` holds the pool's workers; only its tasks are read, not its outcomes.
        """
        tallies, forecasts, hoods = [], [], []
        for part in parts:
            records = Records.of(part.train, np.arange(len(part.train.prompts)))
            asked = embeddings[part.rows]
            tallies.append(tally(part.train, searched(part.train, lambdas)))
            forecasts.append(logistic_forecast(records, part.known, asked, part.folds))
            hoods.append(neighbourhood(records, part.known, asked))
        return cls(
            workers=tuple(worker.name for worker in judged.workers),
            tasks=judged.tasks,
            parts=tuple(parts),
            tallies=tuple(tallies),
            logistic=_aligned(forecasts, parts, len(judged.prompts)),
            hoods=tuple(hoods),
        )

    def at(self, lam: float) -> list[Strategy]:
        """Every baseline that exists over this pool: without comparable answers none can vote."""
        chosen = (self._chosen(name, lam, *how) for name, how in CHOSEN.items())
        near = [hood.forecast(lam) for hood in self.hoods]
        return [
            *(Single(worker) for worker in self.workers),
            *(strategy for strategy in chosen if strategy is not None),
            Router("knn", lam, _aligned(near, self.parts, len(self.tasks))),
            Router("logistic", lam, self.logistic),
            Random(),
            Oracle(lam),
            CheapestRight(),
        ]

    def _chosen(
        self, name: str, lam: float, kinds: tuple[str, ...], by_task: bool
    ) -> Assigned | None:
        place: dict[Fixed, int] = {}
        of = np.full(len(self.tasks), -1, dtype=np.int64)
        tasks = np.array(self.tasks)
        for part, sums in zip(self.parts, self.tallies, strict=True):
            for task in np.unique(tasks[part.rows]):
                best = sums.best(lam, kinds, str(task) if by_task else None)
                if best is None:
                    return None
                here = part.rows[tasks[part.rows] == task]
                of[here] = place.setdefault(best, len(place))
        return Assigned(name, tuple(place), of)


def _aligned(forecasts: Sequence[Forecast], parts: Sequence[Part], prompts: int) -> Forecast:
    """One forecast over the judged table from those of its parts; NaN where no part reaches."""
    score = np.full((len(forecasts[0].names), prompts), np.nan)
    cost = score.copy()
    for forecast, part in zip(forecasts, parts, strict=True):
        score[:, part.rows], cost[:, part.rows] = forecast.score, forecast.cost
    return Forecast(forecasts[0].names, score, cost)
