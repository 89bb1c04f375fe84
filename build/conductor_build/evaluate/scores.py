"""What is said about policies: means with intervals, by task, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.plays import Plays
from conductor_build.bootstrap import DRAWS, Estimate, estimates

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats, Ints

UNKNOWN = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Resampling:
    """How intervals are made. Every interval on the same prompts uses the same draws."""

    seed: int = 0
    draws: int = DRAWS

    def of(self, columns: Sequence[Floats]) -> list[Estimate]:
        """One estimate a column; each column holds one number a prompt."""
        return estimates(np.column_stack(columns), seed=self.seed, draws=self.draws)


@dataclass(frozen=True)
class Score:
    """Accuracy (0 to 1), cost (USD per 1,000 prompts) and utility over `n` prompts."""

    n: int
    accuracy: Estimate
    cost: Estimate
    utility: Estimate


@dataclass(frozen=True)
class Result:
    """One policy at one lambda. `chosen`: which fixed strategies stand behind a chosen baseline,
    and on which share of the prompts."""

    policy: str
    lam: float
    overall: Score
    by_task: Mapping[str, Score]
    chosen: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """Conductor less a baseline on the same prompts.

    `lam` None: the mean over all lambdas of the pool. That has no one weight for money, so of it
    only the utility is known.
    """

    against: str
    lam: float | None
    score: Score


def results(
    plays: Mapping[str, Plays],
    lam: float,
    tasks: Sequence[str],
    chosen: Mapping[str, Mapping[str, float]],
    resampling: Resampling,
) -> list[Result]:
    """One result a policy. `tasks` names the task of each prompt played."""
    names = np.array(tasks)
    overall = score(plays, lam, np.arange(len(names)), resampling)
    by_task = {
        str(task): score(plays, lam, np.flatnonzero(names == task), resampling)
        for task in np.unique(names)
    }
    return [
        Result(
            policy=policy,
            lam=lam,
            overall=overall[policy],
            by_task={task: scores[policy] for task, scores in by_task.items()},
            chosen=chosen.get(policy, {}),
        )
        for policy in plays
    ]


def score(
    plays: Mapping[str, Plays], lam: float, at: Ints, resampling: Resampling
) -> dict[str, Score]:
    """Scores of every policy on the prompts at these positions, resampled together."""
    columns = [
        column[at]
        for played in plays.values()
        for column in (played.score, played.cost, played.utility(lam))
    ]
    found = resampling.of(columns)
    return {name: Score(len(at), *found[3 * i : 3 * i + 3]) for i, name in enumerate(plays)}


def differences(
    ours: Plays, theirs: Mapping[str, Plays], lam: float, resampling: Resampling
) -> list[Difference]:
    """Ours less each of theirs at one lambda."""
    less = {
        name: Plays(ours.score - played.score, ours.cost - played.cost)
        for name, played in theirs.items()
    }
    scores = score(less, lam, np.arange(len(ours.score)), resampling)
    return [Difference(name, lam, found) for name, found in scores.items()]


def mean_differences(
    ours: Sequence[Floats], theirs: Mapping[str, Sequence[Floats]], resampling: Resampling
) -> list[Difference]:
    """Differences of utility averaged over lambdas, prompt by prompt, then resampled.

    `ours` and each of `theirs` hold one array of utilities a lambda.
    """
    columns = [np.mean(np.array(ours) - np.array(each), axis=0) for each in theirs.values()]
    found = resampling.of(columns)
    return [
        Difference(name, None, Score(len(ours[0]), UNKNOWN, UNKNOWN, estimate))
        for name, estimate in zip(theirs, found, strict=True)
    ]
