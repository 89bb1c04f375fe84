"""What one request permits, as cells for the device: its lines, their rows, its runs.

Lines are enumerated from the first; a pool of seven workers and five steps has 30 without labels
and 779 with four classes of them (tests/bench/device_automaton.py). Masks of another kind than
labels may tell every past from every other, so there is a limit, and whoever exceeds it is written
by the host.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conductor.plan.automaton import Automaton
from conductor.plan.byteshape import ACCESS
from conductor.plan.language import Builtin
from conductor.plan.openings import Line, Row
from conductor_kernels.deviceruns import (
    NAMES_OF_BUILTINS,
    NODES_OF_BUILTINS,
    Run,
    Runs,
    comma_place,
    complete_place,
)
from conductor_kernels.ops import automaton_layout as at

MOST_LINES = 1024
"""Lines of a request. Real pools stay below; more take seconds to enumerate."""
MOST_CELLS = 1 << 19
"""Cells of a request, 2 MB. Reached in a second round with many labels, where a step can be shown
any of nine earlier ones."""


@dataclass(frozen=True, eq=False)
class Block:
    """Cells that name each other as if they began at 0."""

    cells: Tensor
    """int32 [N]"""
    names_cell: Tensor
    """bool [N]: whether a cell that is above 0 names another."""
    first: int
    """The first line."""
    run: int
    """What is forced before anything is written."""
    lines: int
    """How many there are, for reports."""

    def __len__(self) -> int:
        return len(self.cells)

    def placed(self, base: int) -> Tensor:
        """The cells as they are from cell `base` of an arena on."""
        return torch.where(self.names_cell & (self.cells > 0), self.cells + base, self.cells)

    def state(self, base: int, most_tokens: int) -> list[int]:
        """A sequence's state before the first token."""
        state = [0] * at.STATE
        state[at.LINE], state[at.USED] = base + self.first, -1
        state[at.RUN] = base + self.run if self.run else 0
        state[at.MOST] = most_tokens
        return state


def block_of(
    automaton: Automaton, nodes: Sequence[int], shared: dict[Hashable, Run]
) -> Block | None:
    """The block of a request, or None when it exceeds a limit. `nodes` are the forced nodes of its
    tokenizer, `shared` keeps what all requests with that tokenizer share."""
    graph = _Graph.of(automaton.start().line)
    if graph is None:
        return None
    return _Writer(graph, Runs(automaton, shared), nodes).write()


def _bits(views: int) -> Iterator[int]:
    while views:
        lowest = views & -views
        yield lowest.bit_length() - 1
        views ^= lowest


def _kind(row: Row) -> tuple[int, int, Builtin | None]:
    """What of a row its cells tell."""
    return row.bare, row.worded, row.worker if isinstance(row.worker, Builtin) else None


def _kinds(line: Line) -> dict[tuple[int, int, Builtin | None], Row]:
    """One row of each kind: workers that may be shown the same share their cells."""
    return {_kind(row): row for row in line.rows.values()}


def _cells(line: Line) -> int:
    """About how many cells its rows take."""
    return 10 * len(_kinds(line)) << line.number


_Into = tuple[Line, Row, int]
"""A line, a row and a view that lead to a line."""


@dataclass
class _Graph:
    """The lines that can be reached, and how."""

    lines: dict[int, Line]
    after: dict[tuple[int, Builtin | None, bool, int], Line]
    """By line, kind of worker, whether the text is worded, and view."""
    bare_into: dict[tuple[int, bool], _Into]
    """One way by which a line is reached without words where none are permitted, by whether a
    built-in goes there."""
    worded_into: dict[int, _Into]

    @classmethod
    def of(cls, first: Line) -> _Graph | None:
        """None when there are more than `MOST_LINES`, or about `MOST_CELLS`: told as soon as that
        is known, since to find all lines of such a request takes many seconds."""
        graph = cls({id(first): first}, {}, {}, {})
        waiting, cells = [first], 0
        while waiting:
            line = waiting.pop()
            cells += _cells(line)
            if cells > MOST_CELLS:
                return None
            for following in graph._leave(line):
                if id(following) not in graph.lines:
                    graph.lines[id(following)] = following
                    waiting.append(following)
            if len(graph.lines) > MOST_LINES:
                return None
        return graph

    def _leave(self, line: Line) -> Iterator[Line]:
        for row in _kinds(line).values():
            for worded, views in ((False, row.bare), (True, row.worded)):
                for view in _bits(views):
                    yield self._step(line, row, view, worded)

    def _step(self, line: Line, row: Row, view: int, worded: bool) -> Line:
        key = (id(line), _kind(row)[2], worded, view)
        if key not in self.after:
            self.after[key] = line.after(row, view, worded=worded)
        following = self.after[key]
        if worded:
            self.worded_into.setdefault(id(following), (line, row, view))
        elif not row.worded >> view & 1:
            self.bare_into.setdefault((id(following), row.builtin), (line, row, view))
        return following


class _Writer:
    """Writes cells. Cell 0 is nobody's."""

    def __init__(self, graph: _Graph, runs: Runs, nodes: Sequence[int]) -> None:
        self._graph, self._runs, self._nodes = graph, runs, nodes
        self._cells, self._names = [0], [False]
        self._line_at: dict[int, int] = {}
        self._run_at: dict[tuple[int, int], int] = {}
        self._fixed_at: dict[tuple[Run, ...], int] = {}

    def write(self) -> Block:
        for line in self._graph.lines.values():
            self._line_at[id(line)] = len(self._cells)
            self._put([0] * (at.NAMES + 2 * self._names_of(line)))
        for line in self._graph.lines.values():
            self._write_line(line)
        first = next(iter(self._graph.lines.values()))
        return Block(
            torch.tensor(self._cells, dtype=torch.int32),
            torch.tensor(self._names),
            self._line_at[id(first)],
            self._run(self._runs.at_line(first)),
            len(self._graph.lines),
        )

    def _put(self, numbers: Sequence[int], *, names: bool = False) -> int:
        """Add cells; where they begin."""
        start = len(self._cells)
        self._cells.extend(numbers)
        self._names.extend([names] * len(numbers))
        return start

    def _set(self, cell: int, number: int, *, names: bool = True) -> None:
        self._cells[cell], self._names[cell] = number, names

    def _run(self, run: Run) -> int:
        """The first cell of a run: a token, and the cell of the next. What ends alike is shared."""
        following = 0
        for token in reversed(run):
            if (token, following) not in self._run_at:
                cell = self._put([token])
                self._put([following], names=True)
                self._run_at[token, following] = cell
            following = self._run_at[token, following]
        return following

    # -- a line -------------------------------------------------------------------------------

    @staticmethod
    def _workers(line: Line) -> int:
        return 1 + max((row.worker for row in line.rows.values() if isinstance(row.worker, int)),
                       default=-1)  # fmt: skip

    def _names_of(self, line: Line) -> int:
        return self._workers(line) + at.BUILTIN_NAMES

    def _write_line(self, line: Line) -> None:
        cell, workers = self._line_at[id(line)], self._workers(line)
        for which, number in ((at.NUMBER, line.number), (at.MAY_END, line.may_end),
                              (at.WORKERS, workers)):  # fmt: skip
            self._set(cell + which, int(number), names=False)
        self._set(cell + at.START_RUN, self._run(self._runs.at_line(line)))
        self._set(cell + at.FIXED_RUNS, self._fixed_runs(line))
        self._set(cell + at.NEWLINE_RUN, self._newline_run(line))
        rows = {kind: self._write_row(line, row) for kind, row in _kinds(line).items()}
        names = [str(number).encode() for number in range(workers)] + [*NAMES_OF_BUILTINS]
        for number, name in enumerate(names):
            if name in line.beginnings:
                row = line.rows.get(name)
                self._set(cell + at.NAMES + number, rows[_kind(row)] if row else at.BEGINS)
                run = self._run(self._runs.in_name(line, name))
                self._set(cell + at.NAMES + len(names) + number, run)

    def _fixed_runs(self, line: Line) -> int:
        table: dict[int, Run] = {}
        for builtin in (False, True):
            into = self._graph.bare_into.get((id(line), builtin))
            if into is not None:
                nodes = NODES_OF_BUILTINS if builtin else self._nodes[:-1]
                table |= {node: self._runs.in_fixed_text(node, *into) for node in nodes}
        if not table:
            return 0
        runs = tuple(table.get(node, ()) for node in self._nodes)
        if runs not in self._fixed_at:
            cells = [*map(self._run, runs)]
            self._fixed_at[runs] = self._put(cells, names=True)
        return self._fixed_at[runs]

    def _newline_run(self, line: Line) -> int:
        into = self._graph.worded_into.get(id(line))
        return self._run(self._runs.at_most_bytes(*into)) if into else 0

    # -- a row --------------------------------------------------------------------------------

    def _write_row(self, line: Line, row: Row) -> int:
        views = range(2 << line.number)
        flags = [(row.bare >> view & 1) + 2 * (row.worded >> view & 1) for view in views]
        before = [0]
        for flag in flags:
            before.append(before[-1] + (flag > 0))
        entries = [4 * count + flag for count, flag in zip(before, [*flags, 0], strict=True)]
        tables = [
            [self._after(line, row, view, worded) for view in views] for worded in (False, True)
        ]
        tables += [[self._run(run) for run in runs] for runs in self._access_runs(line, row)]
        access_run = self._run(self._runs.in_access(line, row, ACCESS, 0))
        cell = self._put([int(row.builtin)])
        self._put([access_run], names=True)
        self._put(entries)
        for table in tables:
            self._put(table, names=True)
        return cell

    def _after(self, line: Line, row: Row, view: int, worded: bool) -> int:
        if not (row.worded if worded else row.bare) >> view & 1:
            return 0
        following = self._graph.after[id(line), _kind(row)[2], worded, view]
        return self._line_at[id(following)]

    def _access_runs(self, line: Line, row: Row) -> tuple[list[Run], list[Run]]:
        """After each view, and after its comma."""
        ends, commas = [], []
        for view in range(2 << line.number):
            alike = view & -view or 1
            ends.append(self._access_run(line, row, view, view, alike))
            comma = comma_place(view, line.number)
            commas.append(() if comma is None else self._comma_run(line, row, view, alike, comma))
        return ends, commas

    def _access_run(self, line: Line, row: Row, view: int, first: int, alike: int) -> Run:
        if not row.views >> first & ((1 << alike) - 1):
            return ()
        return self._runs.in_access(line, row, complete_place(view, line.number), view)

    def _comma_run(self, line: Line, row: Row, view: int, alike: int, place: int) -> Run:
        if not row.views >> view + 1 & ((1 << alike - 1) - 1):
            return ()
        return self._runs.in_access(line, row, place, view)
