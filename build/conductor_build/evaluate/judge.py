"""Plays a conductor and every baseline on the judged prompts, and says who did how well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor_build.baselines.field import Assigned, Field
from conductor_build.baselines.plays import EvaluationError, Plays, Prompts, Strategy, recorded
from conductor_build.baselines.training import training
from conductor_build.bootstrap import DRAWS
from conductor_build.evaluate.scores import (
    Difference,
    Resampling,
    Result,
    differences,
    mean_differences,
    results,
)

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Rows
    from conductor_build.evaluate.pools import Pool
    from conductor_build.outcomes import Table

CONDUCTOR = "conductor"

Conductor = Callable[[float], Strategy]
"""A conductor, for a cost preference lambda. It is played on a table that holds the pool alone, in
the pool's order; the rows are those of the judged table, so that whatever it knows of the judged
prompts (their embeddings) keeps its positions."""


@dataclass(frozen=True)
class Judged:
    """Everything about one pool. `not_recorded`: prompts left out for lack of some outcome;
    `training`: one sentence, what the baselines learned from."""

    pool: Pool
    n: int
    not_recorded: int
    training: str
    results: tuple[Result, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Evaluation:
    """All pools, and what makes the numbers come out again."""

    pools: tuple[Judged, ...]
    resampling: Resampling


def evaluate(
    conductor: Conductor | None,
    judged: Prompts,
    pools: Sequence[Pool],
    *,
    train: Prompts | None = None,
    seed: int = 0,
    draws: int = DRAWS,
) -> Evaluation:
    """Judge a conductor (None: the baselines alone) over each pool, at each of its lambdas.

    Prompts on which some worker of the pool has no recorded outcome are left out and counted, so
    that all policies are compared on the same ones.

    Raises `EvaluationError` when nothing is left to judge or to choose on, or a conductor's plays
    do not fit; `OutcomesError` for a worker that the table does not know or cannot price.
    """
    resampling = Resampling(seed, draws)
    return Evaluation(
        tuple(_judge(conductor, judged, pool, train, resampling) for pool in pools), resampling
    )


def _judge(
    conductor: Conductor | None,
    judged: Prompts,
    pool: Pool,
    train: Prompts | None,
    resampling: Resampling,
) -> Judged:
    table = judged.table.columns(pool.workers)
    rows = recorded(table)
    if not len(rows):
        raise EvaluationError(
            "no prompt has outcomes of every worker of the pool: leave out those with few outcomes"
        )
    parts, how = training(Prompts(table, judged.embeddings), rows, train, resampling.seed)
    baselines = Field.fit(table, judged.embeddings, parts, pool.lambdas)
    tasks = [table.tasks[row] for row in rows]
    found: list[Result] = []
    less: list[Difference] = []
    all_plays: list[dict[str, Plays]] = []
    for lam in pool.lambdas:
        strategies = baselines.at(lam)
        plays = {strategy.name: _play(strategy, table, rows) for strategy in strategies}
        ours = {} if conductor is None else {CONDUCTOR: _play(conductor(lam), table, rows)}
        chosen = {s.name: s.shares(rows) for s in strategies if isinstance(s, Assigned)}
        found += results(ours | plays, lam, tasks, chosen, resampling)
        if ours:
            less += differences(ours[CONDUCTOR], plays, lam, resampling)
        all_plays.append(ours | plays)
    if conductor is not None:
        less += _over_lambdas(all_plays, pool.lambdas, resampling)
    return Judged(pool, len(rows), len(table.prompts) - len(rows), how, tuple(found), tuple(less))


def _over_lambdas(
    plays: Sequence[dict[str, Plays]], lambdas: Sequence[float], resampling: Resampling
) -> list[Difference]:
    utilities = {
        name: [each[name].utility(lam) for each, lam in zip(plays, lambdas, strict=True)]
        for name in plays[0]
    }
    ours = utilities.pop(CONDUCTOR)
    return mean_differences(ours, utilities, resampling)


def _play(strategy: Strategy, table: Table, rows: Rows) -> Plays:
    plays = strategy.play(table, rows)
    if not (plays.score.shape == plays.cost.shape == (len(rows),)):
        raise EvaluationError(
            f"{strategy.name!r} was asked for {len(rows)} prompts and gave "
            f"{plays.score.shape} scores and {plays.cost.shape} costs"
        )
    return plays
