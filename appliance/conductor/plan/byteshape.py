"""The shape of a plan's text, byte by byte: a small machine that knows no pool.

It says what a line may look like in any pool: a worker's name, an access list in rising order, and
well-formed UTF-8 (Unicode Standard, table 3-7) without control characters. Places below `HEAD` are
inside a line's head, the others inside its text. What else decides is kept beside the place, so
that the machine stays small: which heads a pool permits (`openings.py`), how many bytes the text
has, and whether it is one of the fixed texts (`fixedtexts.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from conductor.plan.language import MAX_TOTAL_STEPS, Builtin

DEAD = -1
"""No place: the byte cannot come here."""

_SPACE, _NEWLINE = 0x20, 0x0A
_DIGITS = range(0x30, 0x3A)
_VISIBLE = range(0x21, 0x7F)
_CONTINUATION = range(0x80, 0xC0)

_Moves = dict[str, list[tuple[Iterable[int], str]]]


def _names() -> _Moves:
    """A worker: an ordinal of at most three digits without leading zeros, or a built-in."""
    moves: _Moves = {
        "line": [(b"0", "name"), (_DIGITS[1:], "digit")],
        "digit": [(_DIGITS, "digits"), (b" ", "access")],
        "digits": [(_DIGITS, "name"), (b" ", "access")],
        "name": [(b" ", "access")],
    }
    for builtin in Builtin:
        places = ["line", *(builtin[:n] for n in range(1, len(builtin))), "name"]
        for place, letter, following in zip(places, builtin, places[1:], strict=False):
            moves.setdefault(place, []).append((letter.encode(), following))
    return moves


def _accesses() -> _Moves:
    """An access list. `step3` is the place after a 3, `step3,` the one after its comma."""
    numbers = range(MAX_TOTAL_STEPS)
    steps = [((_DIGITS[n],), f"step{n}") for n in numbers]
    moves: _Moves = {
        "access": [(b"*-", "whole"), (b"q", "question"), *steps],
        "whole": [(b" ", "start")],
        "question": [(b" ", "start"), (b",", "question,")],
        "question,": [*steps],
    }
    for n in numbers:
        moves[f"step{n}"] = [(b" ", "start")]
        if n + 1 < MAX_TOTAL_STEPS:
            moves[f"step{n}"].append((b",", f"step{n},"))
            moves[f"step{n},"] = [*steps[n + 1 :]]
    return moves


def _texts() -> _Moves:
    """A text. `head` stands for every place where a complete access list waits for its space."""
    anything: list[tuple[Iterable[int], str]] = [
        (_VISIBLE, "word"),
        (b"\xc2", "c2"), (range(0xC3, 0xE0), "more1"),
        (b"\xe0", "e0"), (b"\xe2", "e2"), (b"\xed", "ed"),
        ([*range(0xE1, 0xE2), *range(0xE3, 0xED), 0xEE, 0xEF], "more2"),
        (b"\xf0", "f0"), (range(0xF1, 0xF4), "more3"), (b"\xf4", "f4"),
    ]  # fmt: skip
    return {
        "head": [(b" ", "start")],
        "start": [*anything],
        "word": [*anything, (b" ", "space"), (b"\n", "line")],
        "space": [*anything, (b" ", "space")],
        "more1": [(_CONTINUATION, "word")],
        "more2": [(_CONTINUATION, "more1")],
        "more3": [(_CONTINUATION, "more2")],
        "c2": [(range(0xA0, 0xC0), "word")],  # not the C1 control characters
        "e0": [(range(0xA0, 0xC0), "more1")],  # no overlong forms
        "ed": [(range(0x80, 0xA0), "more1")],  # no surrogates
        "f0": [(range(0x90, 0xC0), "more2")],  # no overlong forms
        "f4": [(range(0x80, 0x90), "more2")],  # nothing above U+10FFFF
        "e2": [(b"\x80", "e280"), (range(0x81, 0xC0), "more1")],
        "e280": [([b for b in _CONTINUATION if b not in (0xA8, 0xA9)], "word")],  # no separators
    }


_MOVES = _names() | _accesses() | _texts()
PLACES = tuple(_MOVES)
"""The names of the places; a place is an index into this."""
LINE, ACCESS, HEAD, START = (PLACES.index(name) for name in ("line", "access", "head", "start"))
COMPLETE = frozenset(PLACES.index(n) for n in PLACES if n in ("whole", "question") or (
    n.startswith("step") and not n.endswith(",")
))  # fmt: skip
"""Places after an access list that may be complete."""
STEP = {PLACES.index(f"step{n}"): n for n in range(MAX_TOTAL_STEPS)}
"""Places after the number of a step, with that number."""
QUESTION = PLACES.index("question")


def _row(moves: list[tuple[Iterable[int], str]]) -> array[int]:
    row = array("h", [DEAD] * 256)
    for some, following in moves:
        for byte in some:
            row[byte] = PLACES.index(following)
    return row


NEXT = tuple(_row(moves) for moves in _MOVES.values())
"""`NEXT[place][byte]` is the following place, or `DEAD`."""
_NEEDS = {"space": 1, "more1": 1, "more2": 2, "more3": 3, "c2": 1, "e280": 1,
          "e0": 2, "ed": 2, "e2": 2, "f0": 3, "f4": 3}  # fmt: skip
NEED = tuple(_NEEDS.get(name, 0) for name in PLACES)
"""How many bytes a text must still get before its line can end."""
