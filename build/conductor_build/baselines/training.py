"""What the baselines may learn from: other prompts than those they are judged on.

Training outcomes where they cover the pool. Where not, cross-fitting inside the judged table: five
folds, for each of them everything is chosen on the other four. That favours the baselines, for they
then know the distribution of the judged prompts and a conductor does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.field import Part
from conductor_build.baselines.plays import EvaluationError, Prompts, recorded
from conductor_build.outcomes import Table, split

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats, Ints

FOLDS = 5
INNER_FOLDS = 3
FEWEST = 50
"""Training prompts below which cross-fitting inside the judged table is the stronger opponent."""


def training(
    judged: Prompts, rows: Ints, train: Prompts | None, seed: int
) -> tuple[list[Part], str]:
    """Parts for the judged prompts `rows` of a pool's table, and one sentence on what was done.

    Training prompts whose id or question is judged are left out. Raises `EvaluationError` when
    the judged prompts are too few to cross-fit, or embeddings are of two encoders.
    """
    if train is None:
        return _crossfit(judged, rows, seed, "no training outcomes were given")
    if train.embeddings.shape[1] != judged.embeddings.shape[1]:
        raise EvaluationError("training and judged prompts were embedded by different encoders")
    part = _from_training(judged.table, rows, train)
    if part is None:
        why = f"training outcomes cover this pool on fewer than {FEWEST} other prompts"
        return _crossfit(judged, rows, seed, why)
    return [part], f"chosen and fitted on {len(part.train.prompts):,} training prompts"


def _from_training(judged: Table, rows: Ints, train: Prompts) -> Part | None:
    known = set(train.table.names)
    if not known.issuperset(judged.names) or _unanswered(train.table, judged.names):
        return None
    pool = replace(
        train.table.columns(judged.names),
        workers=judged.workers,  # a worker costs what it costs now
        comparable=train.table.comparable and judged.comparable,
    )
    ids, questions = set(judged.prompts), set(judged.questions)
    use = [
        int(row)
        for row in recorded(pool)
        if pool.prompts[row] not in ids and pool.questions[row] not in questions
    ]
    if len(use) < FEWEST:
        return None
    return _part(rows, pool.rows(use), train.embeddings[use])


def _unanswered(table: Table, names: tuple[str, ...]) -> bool:
    """Whether one of the workers has no outcome at all in a table."""
    columns = [table.names.index(name) for name in names]
    return bool(np.isnan(table.score[:, columns]).all(axis=0).any())


def _crossfit(judged: Prompts, rows: Ints, seed: int, why: str) -> tuple[list[Part], str]:
    if len(rows) < INNER_FOLDS:
        raise EvaluationError(
            f"{len(rows)} judged prompts are too few to choose baselines on: give training outcomes"
        )
    complete = judged.table.rows(rows)
    folds = split(complete, folds=min(FOLDS, len(rows)), seed=seed)
    used = np.unique(folds)
    parts = []
    for fold in used:
        others = np.flatnonzero(folds != fold)
        if len(others) < 2:
            raise EvaluationError("the judged prompts ask one question: give training outcomes")
        known = judged.embeddings[rows[others]]
        parts.append(_part(rows[folds == fold], complete.rows(others), known))
    return parts, f"cross-fitted in {len(used)} folds of the judged prompts, since {why}"


def _part(rows: Ints, train: Table, known: Floats) -> Part:
    """Inner folds go by the order of ids: they hang neither on the order of rows nor on a seed."""
    rank = np.argsort(np.argsort(np.array(train.prompts)))
    return Part(rows, train, known, rank % INNER_FOLDS)
