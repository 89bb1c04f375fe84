"""Which heads a line may get, so that a whole plan of the pool still follows.

A line is known by what can still matter: what the mask makes of the steps before it, how many steps
and calls the plan has, and whether a redaction came last. Lines for which all that is equal are one
object, so that a request works each of them out once, whatever led there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from conductor.plan.language import Builtin
from conductor.plan.mask import Head
from conductor.plan.sights import Sight, Worker, sight_of, view_at
from conductor.plan.validate import PlanPool

__all__ = ["Line", "Row", "first_line"]


@dataclass(frozen=True, slots=True)
class Row:
    """A worker that can do the line's step, and the views that it may be shown, as sets."""

    worker: Worker
    bare: int
    """With `-`, or for a worker a template."""
    worded: int
    """With any other text."""

    @property
    def views(self) -> int:
        return self.bare | self.worded

    @property
    def builtin(self) -> bool:
        return isinstance(self.worker, Builtin)


@dataclass(frozen=True)
class _Past:
    sight: Sight
    steps: int = 0
    calls: int = 0
    redacted: bool = False


class Line:
    """A line that is to be written, or the end in its place."""

    def __init__(self, pool: PlanPool, past: _Past, shelf: dict[_Past, Line]) -> None:
        self._pool, self._past, self._shelf = pool, past, shelf
        self.number = past.sight.number
        """Of its step, counted over all rounds."""
        self.may_end = not past.redacted if past.steps else pool.may_stop
        """Whether the plan may end before this line."""

    @cached_property
    def rows(self) -> dict[bytes, Row]:
        """By name, every worker that can do the step in some way."""
        return {str(row.worker).encode(): row for row in self._each_row()}

    @cached_property
    def beginnings(self) -> frozenset[bytes]:
        """Of the names in `rows`, the whole names included."""
        return frozenset(name[:size] for name in self.rows for size in range(len(name) + 1))

    def after(self, row: Row, view: int, *, worded: bool) -> Line:
        """The next line, once this one shows that view to that worker."""
        head = Head(row.worker, view_at(view, self.number), worded)
        past = _Past(
            self._past.sight.after(head),
            self._past.steps + 1,
            self._past.calls + (not row.builtin),
            row.worker is Builtin.REDACT,
        )
        return self._shelf.setdefault(past, Line(self._pool, past, self._shelf))

    def table(self) -> array[int]:
        """Permissions as the kernels take them: uint8, one row of 2 ** (number + 1) views for each
        worker, then `redact` and `vote`; bit 0 of an entry is `bare`, bit 1 is `worded`."""
        size = 2 << self.number
        table = array("B")
        for worker in (*range(self._pool.workers), Builtin.REDACT, Builtin.VOTE):
            row = self.rows.get(str(worker).encode(), Row(worker, 0, 0))
            table.extend((row.bare >> v & 1) | (row.worded >> v & 1) << 1 for v in range(size))
        return table

    @property
    def _may_call(self) -> bool:
        return self._pool.workers > 0 and self._past.calls < self._pool.max_calls

    def _each_row(self) -> Iterator[Row]:
        """One after the other, those last that are found by looking ahead."""
        if self._past.steps == self._pool.max_steps:
            return
        for worker in range(self._pool.workers) if self._may_call else ():
            row = Row(worker, *self._past.sight.permitted(worker))
            if row.views:
                yield row
        for builtin in sorted(self._pool.builtins, reverse=True):
            row = self._builtin(builtin)
            if row.views:
                yield row

    def _builtin(self, builtin: Builtin) -> Row:
        """`vote` needs a step to choose from; `redact` takes one text and leads to an answer."""
        permitted, _ = self._past.sight.permitted(builtin)
        if builtin is Builtin.VOTE:
            without_steps = 1 | 1 << (1 << self.number)
            return Row(builtin, permitted & ~without_steps, 0)
        row, views = Row(builtin, permitted, 0), 0
        for part in range(self.number + 1):
            view = 1 << part
            if permitted >> view & 1 and self.after(row, view, worded=False)._may_be_answered:
                views |= 1 << view
        return Row(builtin, views, 0)

    @cached_property
    def _may_be_answered(self) -> bool:
        """Whether an answer can still be given, at once or after further redactions."""
        if Builtin.VOTE not in self._pool.builtins and not self._may_call:
            return False
        # The first that can: to look ahead from all of them takes time by the power of the steps.
        return next(self._each_row(), None) is not None


def first_line(pool: PlanPool) -> Line:
    """The first line of a plan of the pool."""
    return Line(pool, _Past(sight_of(pool.mask, pool.earlier, pool.workers)), {})
