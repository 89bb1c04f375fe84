"""Over which workers, and at which lambdas, a conductor is judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.plays import EvaluationError

if TYPE_CHECKING:
    from conductor_build.outcomes import Table

LAMBDAS = (0.01, 0.03, 0.1, 0.3, 1.0)
ALL_WORKERS, LOCAL_WORKERS = "All workers", "Local workers only"


@dataclass(frozen=True)
class Pool:
    """Workers to judge over, in the order the conductor sees them, and the lambdas to judge at."""

    title: str
    workers: tuple[str, ...]
    lambdas: tuple[float, ...] = LAMBDAS

    def __post_init__(self) -> None:
        if not self.workers or not self.lambdas:
            raise EvaluationError("a pool needs at least one worker and one lambda")
        for names in (self.workers, self.lambdas):
            if len(set(names)) < len(names):
                raise EvaluationError("a worker or a lambda stands twice in a pool")
        if any(not math.isfinite(lam) or lam < 0 for lam in self.lambdas):
            raise EvaluationError("lambda must be a finite number, 0 or more")


def views(
    table: Table, workers: Sequence[str] | None = None, lambdas: Sequence[float] = LAMBDAS
) -> tuple[Pool, ...]:
    """The pool as named, and its local workers alone at lambda 0, where utility is accuracy.

    Without names: every worker that answered every prompt and has a known cost.
    Raises `EvaluationError` when there is none, `OutcomesError` for an unknown worker.
    """
    names = complete(table) if workers is None else tuple(workers)
    if not names:
        raise EvaluationError(
            "the pool is empty: name workers, or record for at least one worker the outcome and "
            "the cost of every prompt"
        )
    local = tuple(worker.name for worker in table.columns(names).workers if worker.local)
    if len(local) == len(names):
        return (Pool(LOCAL_WORKERS, names, tuple(dict.fromkeys((0.0, *lambdas)))),)
    whole = Pool(ALL_WORKERS, names, tuple(lambdas))
    if len(local) < 2:  # nothing to conduct
        return (whole,)
    return whole, Pool(LOCAL_WORKERS, local, (0.0,))


def complete(table: Table) -> tuple[str, ...]:
    """The workers that answered every prompt and whose every answer has a known cost."""
    priced = table.priced()
    if not priced.prompts:
        return ()
    full = np.isfinite(priced.score).all(axis=0)
    return tuple(priced.names[column] for column in np.flatnonzero(full))
