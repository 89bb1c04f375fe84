"""Fixed strategies: one worker, votes of k, cascades that stop when answers agree.

`agree(a,b -> c)` asks a and b, takes their answer when it is the same, else asks c and takes c's.
`agree3(a,b; c -> d)` also takes c's answer when it equals a's or b's, else asks d and takes d's.
Every answer that was asked for is paid. An answer that could not be extracted agrees with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Protocol

import numpy as np

from conductor_build.baselines.plays import EvaluationError, Plays, Records

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats, Rows
    from conductor_build.outcomes import Table

SINGLE, VOTE, CASCADE = "single", "vote", "cascade"  # kinds
VOTERS = (3, 5)
"""Sizes of a vote. Two voters can only agree or not, which is a cascade; even sizes tie more."""


class Fixed(Protocol):
    """A strategy that does the same for every prompt, and so needs nothing but records."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    def play(self, table: Table, rows: Rows) -> Plays: ...

    def on(self, records: Records) -> Plays:
        """Outcome on every prompt of the records."""
        ...


@dataclass(frozen=True)
class Single:
    """One worker answers everything."""

    worker: str
    kind: str = SINGLE

    @property
    def name(self) -> str:
        return f"single({self.worker})"

    def play(self, table: Table, rows: Rows) -> Plays:
        return self.on(Records.of(table, rows))

    def on(self, records: Records) -> Plays:
        a = records.at(self.worker)
        return Plays(records.score[a], records.cost[a])


@dataclass(frozen=True)
class Vote:
    """The most frequent answer of several workers; all of them are paid.

    A tie, also that of answers which could not be extracted and so stand alone, counts as the mean
    over the tied answers: nothing hangs on who was asked first.
    """

    workers: tuple[str, ...]
    kind: str = VOTE

    @property
    def name(self) -> str:
        return f"vote({', '.join(self.workers)})"

    def play(self, table: Table, rows: Rows) -> Plays:
        return self.on(Records.of(table, rows))

    def on(self, records: Records) -> Plays:
        members = [records.at(worker) for worker in self.workers]
        votes = np.ones((len(members), records.score.shape[1]))
        for i, j in combinations(range(len(members)), 2):
            same = records.agree(members[i], members[j])
            votes[i] += same
            votes[j] += same
        wins = (votes == votes.max(axis=0)).astype(np.float64)
        score = (wins * records.score[members]).sum(axis=0) / wins.sum(axis=0)
        return Plays(score, records.cost[members].sum(axis=0))


@dataclass(frozen=True)
class Agree:
    """agree(a,b -> c). `pair` has no order; hold it sorted."""

    pair: tuple[str, str]
    last: str
    kind: str = CASCADE

    @property
    def name(self) -> str:
        return f"agree({self.pair[0]}, {self.pair[1]} -> {self.last})"

    def play(self, table: Table, rows: Rows) -> Plays:
        return self.on(Records.of(table, rows))

    def on(self, records: Records) -> Plays:
        a, b, c = (records.at(worker) for worker in (*self.pair, self.last))
        agreed = records.agree(a, b)
        score, cost = records.score, records.cost
        return Plays(
            np.where(agreed, score[a], score[c]),
            cost[a] + cost[b] + np.where(agreed, 0.0, cost[c]),
        )


@dataclass(frozen=True)
class Agree3:
    """agree3(a,b; c -> d). `pair` has no order; hold it sorted."""

    pair: tuple[str, str]
    third: str
    last: str
    kind: str = CASCADE

    @property
    def name(self) -> str:
        return f"agree3({self.pair[0]}, {self.pair[1]}; {self.third} -> {self.last})"

    def play(self, table: Table, rows: Rows) -> Plays:
        return self.on(Records.of(table, rows))

    def on(self, records: Records) -> Plays:
        a, b, c, d = (records.at(worker) for worker in (*self.pair, self.third, self.last))
        agreed = records.agree(a, b)
        settled = records.agree(a, c) | records.agree(b, c)
        score, cost = records.score, records.cost
        later: Floats = cost[c] + np.where(settled, 0.0, cost[d])
        return Plays(
            np.where(agreed, score[a], np.where(settled, score[c], score[d])),
            cost[a] + cost[b] + np.where(agreed, 0.0, later),
        )


def fixed_strategies(pool: Sequence[str], comparable: bool = True) -> Iterator[Fixed]:
    """Every fixed strategy over a pool, each once, in an order that only the names decide.

    Without comparable answers nothing can vote or agree, so only single workers are left.
    Raises `EvaluationError` on an empty pool or a name that stands twice.
    """
    names = sorted(pool)
    if not names:
        raise EvaluationError("the pool is empty: name at least one worker")
    if len(set(names)) < len(names):
        raise EvaluationError("a worker stands twice in the pool")
    yield from map(Single, names)
    if not comparable:
        return
    for size in VOTERS:
        yield from map(Vote, combinations(names, size))
    for pair in combinations(names, 2):
        rest = [name for name in names if name not in pair]
        yield from (Agree(pair, last) for last in rest)
        yield from (Agree3(pair, third, last) for third, last in permutations(rest, 2))
