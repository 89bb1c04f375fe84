"""What a strategy is, what it gives, and the records it is played on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from conductor.errors import ConductorError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from conductor_build.outcomes import Table

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Rows = Sequence[int] | NDArray[np.int64]


class EvaluationError(ConductorError):
    """A table, a pool or a plan cannot be judged; the message says what is missing."""


@dataclass(frozen=True, eq=False)
class Prompts:
    """A table and the sentence embeddings of its prompts, [P, E]."""

    table: Table
    embeddings: Floats

    def __post_init__(self) -> None:
        if self.embeddings.ndim != 2 or len(self.embeddings) != len(self.table.prompts):
            raise EvaluationError("there must be one embedding for every prompt of a table")
        if not np.isfinite(self.embeddings).all():
            raise EvaluationError("an embedding is not finite: embed the prompts again")


def recorded(table: Table) -> Ints:
    """Rows on which score and cost of every worker are known."""
    return np.flatnonzero(np.isfinite(table.score + table.cost()).all(axis=1))


@dataclass(frozen=True, eq=False)
class Plays:
    """Outcome of a strategy on n prompts: `score` 0 to 1 and `cost` in USD per 1,000 prompts, [n].

    Either is NaN where the records do not say.
    """

    score: Floats
    cost: Floats

    def utility(self, lam: float) -> Floats:
        """score - lambda x cost, a prompt, [n]."""
        return self.score - lam * self.cost


class Strategy(Protocol):
    """Anything that can be played on recorded outcomes."""

    @property
    def name(self) -> str: ...

    def play(self, table: Table, rows: Rows) -> Plays:
        """Outcome on the prompts `rows` of `table`, in that order."""
        ...


@dataclass(frozen=True, eq=False)
class Records:
    """A table turned for playing: one contiguous row a worker, workers in the order of their names.

    So no result hangs on the order in which a table holds its workers. `score`, `cost` and `answer`
    are [W, P]; `answer` is -1 where nothing could agree with it.
    """

    names: tuple[str, ...]
    score: Floats
    cost: Floats
    answer: NDArray[np.int32]
    comparable: bool

    @classmethod
    def of(cls, table: Table, rows: Rows) -> Records:
        """The prompts `rows` of a table, in that order."""
        index = np.asarray(rows, dtype=np.int64)
        names = sorted(worker.name for worker in table.workers)
        position = {worker.name: column for column, worker in enumerate(table.workers)}
        order = [position[name] for name in names]
        return cls(
            names=tuple(names),
            score=np.ascontiguousarray(table.score[index][:, order].T, dtype=np.float64),
            cost=np.ascontiguousarray(table.cost()[index][:, order].T, dtype=np.float64),
            answer=np.ascontiguousarray(table.answer[index][:, order].T),
            comparable=table.comparable,
        )

    def at(self, worker: str) -> int:
        """The row of a worker. Raises `EvaluationError` when the records do not know it."""
        if worker not in self.names:
            raise EvaluationError(
                f"no outcomes of {worker!r} here; recorded are: {', '.join(self.names)}"
            )
        return self.names.index(worker)

    def agree(self, a: int, b: int) -> NDArray[np.bool_]:
        """Where two workers gave the same answer, [P]. A missing answer agrees with nothing."""
        same: NDArray[np.bool_] = (self.answer[a] == self.answer[b]) & (self.answer[a] >= 0)
        return same
