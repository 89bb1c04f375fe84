"""Which fixed strategy is best on training prompts, overall and per task.

Only the training table is read, never the one that is judged. `tally` plays every strategy once;
each choice after that, for any lambda and task, is a few additions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.fixed import CASCADE, SINGLE, VOTE, Fixed, Single, fixed_strategies
from conductor_build.baselines.plays import EvaluationError, Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from conductor_build.baselines.plays import Floats
    from conductor_build.outcomes import Table

ALL_KINDS = (SINGLE, VOTE, CASCADE)
SEARCHED = 14
"""Largest pool of which every strategy is tried: 15,484 of them, about 2 s on 1,700 prompts."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums of score and cost of S strategies by task, [S, T], and the prompts of each task, [T].

    A strategy that needs an outcome that is not recorded is NaN there and is never chosen.
    """

    strategies: tuple[Fixed, ...]
    kinds: NDArray[np.str_]
    tasks: tuple[str, ...]
    score: Floats
    cost: Floats
    count: Floats

    def best(
        self, lam: float, kinds: Collection[str] = ALL_KINDS, task: str | None = None
    ) -> Fixed | None:
        """The strategy of highest mean utility, of one task or of all.

        Of equal ones the cheaper, then the one of fewer workers, then the first by name. A task
        that training never saw gets the best of all tasks. None when there is none of these kinds.
        """
        use = [i for i, name in enumerate(self.tasks) if task in (None, name)]
        use = use or list(range(len(self.tasks)))
        prompts = self.count[use].sum()
        score = self.score[:, use].sum(axis=1) / prompts
        cost = self.cost[:, use].sum(axis=1) / prompts
        utility = score - lam * cost
        eligible = np.isin(self.kinds, list(kinds)) & np.isfinite(utility)
        if not eligible.any():
            return None
        order = np.lexsort((cost.round(9), -utility.round(9), ~eligible))
        return self.strategies[int(order[0])]


def tally(train: Table, strategies: Sequence[Fixed]) -> Tally:
    """Play every strategy on every prompt of a training table, and sum by task.

    Raises `EvaluationError` when there is no prompt.
    """
    if not train.prompts:
        raise EvaluationError("there is no training prompt to choose a strategy on")
    tasks, group = np.unique(np.array(train.tasks), return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(tasks)))
    records = Records.of(train, order)
    score = np.empty((len(strategies), len(tasks)))
    cost = np.empty_like(score)
    for index, strategy in enumerate(strategies):
        plays = strategy.on(records)
        score[index] = np.add.reduceat(plays.score, starts)
        cost[index] = np.add.reduceat(plays.cost, starts)
    return Tally(
        strategies=tuple(strategies),
        kinds=np.array([strategy.kind for strategy in strategies]),
        tasks=tuple(str(task) for task in tasks),
        score=score,
        cost=cost,
        count=np.bincount(group).astype(np.float64),
    )


def searched(train: Table, lambdas: Sequence[float]) -> list[Fixed]:
    """The strategies to try over the workers of `train`: all of them up to `SEARCHED` workers.

    Of a larger pool every single worker, and votes and cascades over those workers that are best
    alone on the training prompts, at each lambda and within each task in turn.
    """
    names = [worker.name for worker in train.workers]
    if len(names) <= SEARCHED or not train.comparable:
        return list(fixed_strategies(names, train.comparable))
    singles = [Single(name) for name in sorted(names)]
    sums = tally(train, singles)
    ranked = [
        np.argsort(-(sums.score[:, task] - lam * sums.cost[:, task]), kind="stable")
        for lam in lambdas
        for task in range(len(sums.tasks))
    ]
    shortlist: dict[str, None] = {}
    for place in zip(*ranked, strict=True):
        shortlist.update(dict.fromkeys(singles[int(index)].worker for index in place))
    among = list(fixed_strategies(list(shortlist)[:SEARCHED], comparable=True))
    return [*singles, *(strategy for strategy in among if strategy.kind != SINGLE)]
