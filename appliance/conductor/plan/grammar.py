"""Which byte may come next in a plan that is being written: the reference oracle.

Slow and plain on purpose, and written apart from the parser: the token automaton that constrains
decoding is tested against it, and it is tested against `language.parse` and `validate.validate`.
A byte is allowed exactly when some plan that fits the pool begins with the text so far and that
byte, so no walk through the oracle ever reaches a dead end.

A line is a *head*, `<worker> <access> `, one of a finite set that is listed outright, worker by
worker, and then a text, which a machine over UTF-8 bytes follows (well-formed sequences: Unicode
Standard, table 3-7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, combinations

from conductor.plan.language import MAX_SUBTASK_BYTES, Builtin, View
from conductor.plan.mask import Head
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool

_SPACE, _DASH, _NEWLINE = b" -\n"
_VISIBLE = frozenset(range(0x21, 0x7F))
_CONTINUATION = frozenset(range(0x80, 0xC0))
_LEADS = {2: range(0xC2, 0xE0), 3: range(0xE0, 0xF0), 4: range(0xF0, 0xF5)}
"""First bytes of characters, by their length in bytes."""
_NARROWED = {
    b"\xc2": frozenset(range(0xA0, 0xC0)),  # not the C1 control characters
    b"\xe0": frozenset(range(0xA0, 0xC0)),  # no overlong forms
    b"\xed": frozenset(range(0x80, 0xA0)),  # no surrogates
    b"\xf0": frozenset(range(0x90, 0xC0)),  # no overlong forms
    b"\xf4": frozenset(range(0x80, 0x90)),  # nothing above U+10FFFF
    b"\xe2\x80": _CONTINUATION - {0xA8, 0xA9},  # not the line and paragraph separators
}
"""What may follow the beginning of a character, where that is not every continuation byte."""
_TEMPLATES = frozenset(template.value.encode() for template in Template)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may come next: these bytes, or the end. Neither: the text begins no plan."""

    next_bytes: frozenset[int]
    may_end: bool


@dataclass(frozen=True, slots=True)
class _Option:
    """A head that can be written now, and how its line may go on."""

    worker: int | Builtin
    view: View
    bare: bool
    """Whether the lone `-` may follow, or, for a worker, a template."""
    text: bool
    """Whether any other instruction may follow."""

    @property
    def templates(self) -> bool:
        return self.bare and not isinstance(self.worker, Builtin)


@dataclass(frozen=True, slots=True)
class _Text:
    """Where in a subtask the writing stands."""

    used: int = 0
    """Bytes so far, of at most MAX_SUBTASK_BYTES."""
    last: int = _NEWLINE
    partial: bytes = b""
    """The bytes so far of a character that is not complete."""
    start: bytes | None = b""
    """All that is written, as long as a template begins so; else None."""

    @property
    def worded(self) -> bool:
        """Whether it would be an instruction in the planner's own words, if it ended here."""
        lone_dash = self.used == 1 and self.last == _DASH
        return not lone_dash and self.start not in _TEMPLATES


@dataclass(frozen=True, slots=True)
class State:
    """Where in a plan the writing stands: whole lines, then the line that is being written."""

    lines: tuple[Head, ...] = ()
    """Of this plan; the steps of earlier rounds are in the pool."""
    written: bytes = b""
    """The head of the current line, as far as it is written."""
    text: _Text | None = None
    """Set once the head is complete."""


class Grammar:
    """The oracle for one pool."""

    def __init__(self, pool: PlanPool) -> None:
        self._pool = pool
        self._names = lru_cache(maxsize=256)(self._find_names)
        self._options = lru_cache(maxsize=256)(self._find_options)

    def allowed(self, prefix: bytes) -> Allowed:
        """What may follow `prefix`. Nothing at all when it begins no plan of this pool."""
        state: State | None = State()
        for byte in prefix:
            if state is None:
                break
            state = self.advance(state, byte)
        return Allowed(frozenset(), False) if state is None else self.allowed_at(state)

    def accepts(self, text: bytes) -> bool:
        """Whether `text` is a whole plan of this pool."""
        return self.allowed(text).may_end

    def allowed_at(self, state: State) -> Allowed:
        """What may follow in `state`."""
        if state.text is not None:
            option = self._heads(state)[state.written]
            return Allowed(frozenset(_text_bytes(state.text, option)), False)
        size = len(state.written)
        heads = self._heads(state)
        next_bytes = frozenset(head[size] for head in heads if head.startswith(state.written))
        return Allowed(next_bytes, not state.written and self._may_end(state.lines))

    def advance(self, state: State, byte: int) -> State | None:
        """The state after one more byte; None when the byte is not allowed."""
        if byte not in self.allowed_at(state).next_bytes:
            return None
        if state.text is None:
            following = State(state.lines, state.written + bytes([byte]))
            complete = following.written in self._heads(following)
            return replace(following, text=_Text()) if complete else following
        if byte != _NEWLINE:
            return State(state.lines, state.written, _after(state.text, byte))
        option = self._heads(state)[state.written]
        head = Head(option.worker, option.view, free_text=state.text.worded)
        return State((*state.lines, head))

    def _may_end(self, lines: tuple[Head, ...]) -> bool:
        if not lines:
            return self._pool.may_stop
        return lines[-1].worker is not Builtin.REDACT

    def _heads(self, state: State) -> Mapping[bytes, _Option]:
        """The heads that the current line may get, each with how the line goes on. While the worker
        is being written, its beginning stands for all of its heads."""
        name, space, _ = state.written.partition(b" ")
        return self._options(state.lines, name) if space else self._names(state.lines)

    def _find_names(self, lines: tuple[Head, ...]) -> dict[bytes, _Option]:
        """Every worker that may come after `lines`, with one option that shows it."""
        shown = ((worker, next(self._open(lines, worker), None)) for worker in self._workers())
        return {f"{worker} ".encode(): found[1] for worker, found in shown if found is not None}

    def _find_options(self, lines: tuple[Head, ...], name: bytes) -> dict[bytes, _Option]:
        found = (worker for worker in self._workers() if str(worker).encode() == name)
        return {head: option for worker in found for head, option in self._open(lines, worker)}

    def _open(
        self, lines: tuple[Head, ...], worker: int | Builtin
    ) -> Iterator[tuple[bytes, _Option]]:
        """Every head of `worker` that may follow `lines` and still leads to a whole plan."""
        if len(lines) == self._pool.max_steps:
            return
        for access, view in _accesses(self._pool.first + len(lines)):
            bare = self._leads_on(lines, Head(worker, view, False))
            text = self._leads_on(lines, Head(worker, view, True))
            if bare or text:
                yield f"{worker} {access} ".encode(), _Option(worker, view, bare, text)

    def _workers(self) -> Iterator[int | Builtin]:
        yield from range(self._pool.workers)
        yield from sorted(self._pool.builtins)

    def _leads_on(self, lines: tuple[Head, ...], head: Head) -> bool:
        """Whether `head` may come next; a redaction only if an answer can still follow."""
        if not _well_formed(head) or not (
            isinstance(head.worker, Builtin) or self._may_call(lines)
        ):
            return False
        if not self._pool.mask.permits((*self._pool.earlier, *lines), head):
            return False
        return head.worker is not Builtin.REDACT or self._may_answer((*lines, head))

    def _may_answer(self, lines: tuple[Head, ...]) -> bool:
        """Whether a step that is an answer can follow, at once or after further redactions."""
        if Builtin.VOTE not in self._pool.builtins and not self._may_call(lines):
            return False  # said first, since trying all chains of redactions would take for ever
        return any(any(self._open(lines, worker)) for worker in self._workers())

    def _may_call(self, lines: tuple[Head, ...]) -> bool:
        """Whether the pool has a worker and a call to it is left."""
        calls = sum(not isinstance(line.worker, Builtin) for line in lines)
        return self._pool.workers > 0 and calls < self._pool.max_calls


def _well_formed(head: Head) -> bool:
    if head.worker is Builtin.REDACT:
        return not head.free_text and head.view.question + len(head.view.steps) == 1
    if head.worker is Builtin.VOTE:
        return not head.free_text and len(head.view.steps) > 0
    return True


def _accesses(number: int) -> Iterator[tuple[str, View]]:
    """Every access list of the step of that number, with what it shows."""
    yield "*", View(True, tuple(range(number)))
    yield "-", View(False, ())
    subsets = chain.from_iterable(combinations(range(number), n) for n in range(number + 1))
    for steps in subsets:
        names = [str(step) for step in steps]
        yield ",".join(["q", *names]), View(True, steps)
        if steps:
            yield ",".join(names), View(False, steps)


def _text_bytes(text: _Text, option: _Option) -> Iterator[int]:
    if text.partial:
        yield from _NARROWED.get(text.partial, _CONTINUATION)
        return
    if text.used and text.last != _SPACE and (option.text if text.worded else option.bare):
        yield _NEWLINE
    if option.text:
        yield from _any_text(text)
        return
    if option.bare and not text.used:
        yield _DASH
    if option.templates and text.start is not None:
        begun = (one for one in _TEMPLATES if one.startswith(text.start) and one != text.start)
        yield from {one[text.used] for one in begun}


def _any_text(text: _Text) -> Iterator[int]:
    left = MAX_SUBTASK_BYTES - text.used
    if left >= 1:
        yield from _VISIBLE
    if left >= 2 and text.used:
        yield _SPACE  # with room for the byte that must follow it
    for size, leads in _LEADS.items():
        if left >= size:
            yield from leads


def _after(text: _Text, byte: int) -> _Text:
    partial = text.partial + bytes([byte])
    whole = byte < 0x80 or any(
        partial[0] in leads and len(partial) == n for n, leads in _LEADS.items()
    )
    start = None if text.start is None else text.start + bytes([byte])
    if start is not None and not any(one.startswith(start) for one in _TEMPLATES):
        start = None
    return _Text(text.used + 1, byte, b"" if whole else partial, start)
