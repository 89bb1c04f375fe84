"""What a request's plans are forced to, as runs of tokens that the host has spelled.

A run depends on little: the text that is forced, and what may come after it. States that agree in
that share a run, so a request asks `Automaton.forced` some dozen times, not for each of its states.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from conductor.plan.automaton import Automaton, State
from conductor.plan.byteshape import ACCESS, LINE, NEXT, PLACES, START
from conductor.plan.fixedtexts import DASH, OPEN, STRAYED, TREE
from conductor.plan.language import MAX_SUBTASK_BYTES, Builtin
from conductor.plan.openings import Line, Row
from conductor.plan.writing import only_byte, step, walk

Run = tuple[int, ...]
_WHOLE, _WORD, _QUESTION = (PLACES.index(name) for name in ("whole", "word", "question"))


def complete_place(view: int, number: int) -> int:
    """The place after an access list that names that view."""
    if not view:
        return _WHOLE
    if view == 1 << number:
        return _QUESTION
    last = number - (view & -view).bit_length()
    return PLACES.index(f"step{last}")


def comma_place(view: int, number: int) -> int | None:
    """The place after its comma, if one may come."""
    name = PLACES[complete_place(view, number)] + ","
    return PLACES.index(name) if name in PLACES else None


class Runs:
    """Of one request. `shared` outlives it: runs that hang on the tokenizer alone."""

    def __init__(self, automaton: Automaton, shared: dict[Hashable, Run]) -> None:
        self._automaton, self._shared = automaton, shared
        self._own: dict[Hashable, Run] = {}
        self._bytes: dict[Hashable, tuple[bytes, int, int]] = {}
        self._texts = dict(_texts())

    def at_line(self, line: Line) -> Run:
        """What is forced at the beginning of a line."""
        return self._own_run((_after(line),), lambda: State(line)) if _forces(line) else ()

    def in_name(self, line: Line, name: bytes) -> Run:
        """After the beginning of a name, or all of it."""
        names = [one for one in line.rows if one.startswith(name)]
        state = State(line, _name_place(name), name)
        if len(names) != 1:
            key = (id(line), name)
            return self._own_run(key, lambda: state) if only_byte(state) is not None else ()
        row = line.rows[names[0]]
        forced = self._access_key(line, row, ACCESS, 0)
        return self._own_run((name, names[0], *forced), lambda: state)

    def in_access(self, line: Line, row: Row, place: int, view: int) -> Run:
        """In an access list, or before it."""
        text, *key = self._access_key(line, row, place, view)
        state = State(line, place, row=row, view=view)
        return self._own_run((text, *key), lambda: state) if text else ()

    def in_fixed_text(self, node: int, line: Line, row: Row, view: int) -> Run:
        """In a fixed text, up to where it may go on in two ways or to what follows its line, where
        no other text is permitted."""
        before = State(line, complete_place(view, line.number), row=row, view=view)
        state = walk(before, self._texts[node])
        assert state is not None
        following: int | bool = False
        if row.builtin or _reaches_end(node):
            following = _after(line.after(row, view, worded=False))
        if not isinstance(following, bool):
            return self._own_run((node, row.builtin, following), lambda: state)
        key = (node, row.builtin)
        if key not in self._shared:
            run = tuple(self._automaton.forced(state))
            self._shared[key] = run[:-1] if following else run
        end = self.at_line(line.after(row, view, worded=False)) if following else ()
        return self._shared[key] + end

    def at_most_bytes(self, line: Line, row: Row, view: int) -> Run:
        """At the end of a text that may get no longer."""
        state = State(line, _WORD, b"", row, view, MAX_SUBTASK_BYTES, STRAYED)
        following = _after(line.after(row, view, worded=True))
        return self._own_run(("full", following), lambda: state)

    def _own_run(self, key: Hashable, state: Callable[[], State]) -> Run:
        if key not in self._own:
            self._own[key] = tuple(self._automaton.forced(state()))
        return self._own[key]

    def _access_key(self, line: Line, row: Row, place: int, view: int) -> tuple[Hashable, ...]:
        """The text that is forced in an access list, and all that its spelling hangs on."""
        text, place, view = self._forced_access(line, row, place, view)
        kind = (row.bare, row.worded, row.builtin, line.number)
        if place != START:
            return text, place, view, kind
        if row.builtin:
            return text, kind, _after(line.after(row, view, worded=False))
        return text, row.bare >> view & 1, row.worded >> view & 1

    def _forced_access(self, line: Line, row: Row, place: int, view: int) -> tuple[bytes, int, int]:
        key = (line.number, row.views, place, view)
        if key not in self._bytes:
            state, text = State(line, place, row=row, view=view), b""
            while state.place < START and (byte := only_byte(state)) is not None:
                following = step(state, byte)
                assert following is not None
                state, text = following, text + bytes((byte,))
            self._bytes[key] = text, state.place, state.view
        return self._bytes[key]


def _forces(line: Line) -> bool:
    return _after(line) is not False


def _reaches_end(node: int) -> bool:
    """Whether only one fixed text goes on from a node. Some begin alike."""
    while len(TREE[node]) == 1:
        (node,) = TREE[node].values()
    return not TREE[node]


def _after(line: Line) -> int | bool:
    """What is forced at a line's beginning, so far as it tells lines apart: a choice (False), the
    end (True), or a text of its own (the line)."""
    if line.may_end:
        return not line.rows
    return id(line) if only_byte(State(line)) is not None else False


def _name_place(name: bytes) -> int:
    place = LINE
    for byte in name:
        place = NEXT[place][byte]
    return place


def _texts() -> Iterator[tuple[int, bytes]]:
    """Each node of the fixed texts with the bytes that lead there."""
    waiting = [(0, b"")]
    while waiting:
        node, text = waiting.pop()
        yield node, text
        waiting.extend((after, text + bytes((byte,))) for byte, after in TREE[node].items())


NODES_OF_BUILTINS = (DASH, OPEN)
"""Where a built-in's text is forced, whose only one is `-`."""
NAMES_OF_BUILTINS = tuple(
    name[:size].encode()
    for name in (Builtin.REDACT, Builtin.VOTE)
    for size in range(1, len(name) + 1)
)
"""Their names, letter by letter, in the order in which a line has them."""
