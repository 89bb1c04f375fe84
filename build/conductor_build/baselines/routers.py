"""Learned routers: each forecasts every worker's score and cost on a prompt, and asks the best.

They are fitted on training prompts alone; a setting they need (number of neighbours, strength of
regularisation) is chosen there too. Left out: routers that ask more than one worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines import linear
from conductor_build.baselines.plays import EvaluationError, Plays, Records

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats, Ints, Rows
    from conductor_build.outcomes import Table

NEIGHBOURS = (5, 10, 20, 40, 80, 160)


@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected score and cost of every worker on P prompts, [W, P]; workers in order of name."""

    names: tuple[str, ...]
    score: Floats
    cost: Floats

    def choice(self, lam: float) -> Ints:
        """The worker of highest expected utility on every prompt, [P]; of equal ones the first."""
        best: Ints = np.argmax(self.score - lam * self.cost, axis=0)
        return best


@dataclass(frozen=True, eq=False)
class Router:
    """A strategy: ask the worker whose forecast is best. `forecast` is aligned with the table."""

    name: str
    lam: float
    forecast: Forecast

    def play(self, table: Table, rows: Rows) -> Plays:
        records = Records.of(table, rows)
        if records.names != self.forecast.names:
            raise EvaluationError("a router was fitted on another pool than it is played on")
        chosen = self.forecast.choice(self.lam)[np.asarray(rows, dtype=np.int64)]
        prompts = np.arange(len(chosen))
        return Plays(records.score[chosen, prompts], records.cost[chosen, prompts])


def logistic_forecast(train: Records, known: Floats, asked: Floats, folds: Ints) -> Forecast:
    """Chance of being right by logistic regression, cost by ridge regression.

    `known` [P, E] are the embeddings of the training prompts, `asked` [Q, E] of those to judge;
    `folds` [P] divides the training prompts to choose the strengths.
    """
    score, cost = train.score.T, train.cost.T
    strength = linear.best_strength(linear.logistic, linear.cross_entropy, known, score, folds)
    right = linear.logistic(known, score, strength)
    strength = linear.best_strength(linear.ridge, linear.squared_error, known, cost, folds)
    price = linear.ridge(known, cost, strength)
    return Forecast(train.names, linear.sigmoid(right(asked)).T, price(asked).clip(min=0.0).T)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Forecasts of a kNN router for several k: for the asked prompts, and leaving one out for the
    training prompts themselves, from which k is chosen."""

    train: Records
    sizes: tuple[int, ...]
    left_out: tuple[Forecast, ...]
    asked: tuple[Forecast, ...]

    def forecast(self, lam: float) -> Forecast:
        """That of the k with the highest training utility at this lambda; of equal ones larger."""
        prompts = np.arange(self.train.score.shape[1])
        utility = self.train.score - lam * self.train.cost
        mean = [utility[f.choice(lam), prompts].mean().round(9) for f in self.left_out]
        best = max(range(len(mean)), key=lambda index: (mean[index], self.sizes[index]))
        return self.asked[best]


def neighbourhood(train: Records, known: Floats, asked: Floats) -> Neighbourhood:
    """Neighbours of every prompt by cosine, for every k that leaves training prompts over."""
    most = len(known) - 1
    if most < 1:
        raise EvaluationError("a router of neighbours needs at least two training prompts")
    sizes = tuple(k for k in NEIGHBOURS if k <= most) or (most,)
    known, asked = _unit(known), _unit(asked)
    own = known @ known.T
    np.fill_diagonal(own, -np.inf)
    return Neighbourhood(
        train, sizes, _means(train, own, sizes), _means(train, asked @ known.T, sizes)
    )


def _means(train: Records, near: Floats, sizes: tuple[int, ...]) -> tuple[Forecast, ...]:
    """Mean score and cost over the nearest k, for each k. `near` is [Q, P], larger is nearer."""
    most = sizes[-1]
    order = np.argpartition(-near, most - 1, axis=1)[:, :most]
    nearest_first = np.argsort(-np.take_along_axis(near, order, axis=1), axis=1, kind="stable")
    order = np.take_along_axis(order, nearest_first, axis=1)
    ends = np.array(sizes) - 1
    score = np.stack([row[order].cumsum(axis=1)[:, ends] for row in train.score])
    cost = np.stack([row[order].cumsum(axis=1)[:, ends] for row in train.cost])
    return tuple(
        Forecast(train.names, score[:, :, index] / size, cost[:, :, index] / size)
        for index, size in enumerate(sizes)
    )


def _unit(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = rows / np.where(length > 0, length, 1.0)
    return unit
