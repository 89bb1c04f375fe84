"""Where in a plan the writing stands, and where one more byte leads: what a pool adds to the shape.

The automaton's own machine over bytes. It shares nothing but the language's constants with
`grammar.py`, the oracle that it is tested against.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from conductor.plan.byteshape import (
    ACCESS,
    COMPLETE,
    DEAD,
    HEAD,
    LINE,
    NEED,
    NEXT,
    QUESTION,
    START,
    STEP,
)
from conductor.plan.fixedtexts import BEFORE, DASH_DONE, OPEN, TREE, follow, is_fixed
from conductor.plan.language import MAX_SUBTASK_BYTES
from conductor.plan.openings import Line, Row

ENDED = len(NEXT)
"""The place after the end token."""
_SPACE, _COMMA, _DASH, _STAR, _QUESTION = b" ,-*q"


@dataclass(frozen=True, slots=True)
class State:
    """Where the writing stands: a place of `byteshape`, and what is kept beside it."""

    line: Line
    place: int = LINE
    name: bytes = b""
    """The worker's name, as far as it is written."""
    row: Row | None = None
    """Set once the name is complete."""
    view: int = 0
    """What is named so far, as an index of a view (`sights.py`)."""
    used: int = -1
    """Bytes of the text so far; -1 before the space that begins it."""
    node: int = BEFORE
    """Where in the fixed texts the text stands."""

    @property
    def left(self) -> int:
        """How many bytes the text may still get."""
        return MAX_SUBTASK_BYTES - self.used

    @property
    def complete(self) -> bool:
        """Whether the access list may be left as it is."""
        return (
            self.place in COMPLETE
            and self.row is not None
            and bool(self.row.views >> self.view & 1)
        )

    @property
    def bare(self) -> bool:
        """Whether the text may be a fixed one."""
        return self.row is not None and bool(self.row.bare >> self.view & 1)

    @property
    def worded(self) -> bool:
        """Whether the text may be in the planner's own words."""
        return self.row is not None and bool(self.row.worded >> self.view & 1)

    @property
    def to_builtin(self) -> bool:
        return self.row is not None and self.row.builtin

    def may_follow(self, node: int) -> bool:
        """Whether a fixed text may go on to that node: a built-in takes the lone `-` alone."""
        return self.bare and (
            OPEN <= node <= DASH_DONE or (node > DASH_DONE and not self.to_builtin)
        )


def step(state: State, byte: int) -> State | None:
    """The state after one more byte; None when no plan of the pool goes on so."""
    if state.place == ENDED or NEXT[state.place][byte] == DEAD:
        return None
    if state.place < ACCESS:
        return _in_name(state, byte)
    return _in_access(state, byte) if state.place < HEAD else _in_text(state, byte)


def walk(state: State, text: bytes) -> State | None:
    """The state after these bytes; None when no plan of the pool goes on so."""
    following: State | None = state
    for byte in text:
        if following is None:
            break
        following = step(following, byte)
    return following


def only_byte(state: State) -> int | None:
    """The one byte that can come next; None when there are several, or the plan may end."""
    if state.place == ENDED or (state.place == LINE and state.line.may_end):
        return None
    found = None
    for byte in _candidates(state):
        if step(state, byte) is not None:
            if found is not None:
                return None
            found = byte
    return found


def _candidates(state: State) -> Iterable[int]:
    if state.place >= HEAD and not state.worded:
        return TREE[state.node]
    return (byte for byte, after in enumerate(NEXT[state.place]) if after != DEAD)


def _in_name(state: State, byte: int) -> State | None:
    place = NEXT[state.place][byte]
    if byte == _SPACE:
        row = state.line.rows.get(state.name)
        return None if row is None else State(state.line, place, row=row)
    name = state.name + bytes((byte,))
    return State(state.line, place, name) if name in state.line.beginnings else None


def _in_access(state: State, byte: int) -> State | None:
    place = NEXT[state.place][byte]
    if byte == _SPACE:
        return replace(state, place=START, used=0, node=OPEN) if state.complete else None
    number, view = state.line.number, state.view
    if byte == _STAR:
        return _shown(state, place, (2 << number) - 1, 1)
    if byte == _DASH:
        return _shown(state, place, 0, 1)
    if byte == _QUESTION:
        return _shown(state, place, 1 << number, 1 << number)
    if byte == _COMMA:
        later = 1 << _steps_after(state.place, number)
        return replace(state, place=place) if _any(state.row, view + 1, later - 1) else None
    if STEP[place] >= number:
        return None
    later = 1 << _steps_after(place, number)
    return _shown(state, place, view | later, later)


def _steps_after(place: int, number: int) -> int:
    """How many steps can still be named after what was named last."""
    return number if place == QUESTION else number - 1 - STEP[place]


def _shown(state: State, place: int, view: int, count: int) -> State | None:
    """The state in which `view` is named, if one of the `count` views from there is permitted:
    those that begin alike lie side by side."""
    return replace(state, place=place, view=view) if _any(state.row, view, count) else None


def _any(row: Row | None, view: int, count: int) -> bool:
    return row is not None and bool(row.views >> view & ((1 << count) - 1))


def _in_text(state: State, byte: int) -> State | None:
    place = NEXT[state.place][byte]
    if place == LINE:
        fixed = is_fixed(state.node)
        ends = state.may_follow(follow(state.node, byte)) if fixed else state.worded
        return next_line(state, worded=not fixed) if ends else None
    return within(state, place, 1, follow(state.node, byte))


def within(state: State, place: int, size: int, node: int) -> State | None:
    """The state after `size` more bytes of text, if they may come."""
    used = state.used + size
    fits = state.worded and used + NEED[place] <= MAX_SUBTASK_BYTES
    if not fits and not state.may_follow(node):
        return None
    return State(state.line, place, b"", state.row, state.view, used, node)


def next_line(state: State, *, worded: bool) -> State:
    """The state at the beginning of the next line."""
    assert state.row is not None
    return State(state.line.after(state.row, state.view, worded=worded))
