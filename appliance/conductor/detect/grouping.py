"""Numbers however they are grouped: one space in place of all that stands between their parts.

Only the stretches of a text are looked at that hold enough digits close together; most texts have
none. Every account number in the world has eight digits in a row, if not for what groups them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from conductor.detect.canonical import BREAK
from conductor.detect.rules import options

_DENSE = r"[0-9](?:[^0-9A-Za-z\x1e]{0,8}[0-9]){7}"
_BEFORE, _AFTER = 120, 300
"""Bytes kept around: the longest account number has 34 characters, each grouped by up to eight."""

_MANY = 400
"""From so many stretches on, the whole text is one: a table of numbers."""

_BETWEEN = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\t\n\v\f\r"
_TO_SPACE = bytes.maketrans(_BETWEEN, b" " * len(_BETWEEN))


@cache
def _dense() -> Any:
    import re2

    return re2.compile(_DENSE.encode(), options())


def grouped(text: bytes) -> bytes:
    """The stretches of a text where digits are dense, each a line of words and single spaces."""
    parts = [_spaced(text[first:last]) for first, last in _stretches(text)]
    return BREAK.encode().join(parts)


def _stretches(text: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    position = 0
    while (match := _dense().search(text, position)) is not None:
        first, position = max(0, match.start() - _BEFORE), match.end()
        last = min(len(text), position + _AFTER)
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
        if len(found) >= _MANY:
            return [(0, len(text))]
        position = max(position, last - _BEFORE)
    return found


def _spaced(text: bytes) -> bytes:
    text = text.translate(_TO_SPACE)
    while b"  " in text:  # halves every run, where splitting would make an object of every word
        text = text.replace(b"  ", b" ")
    return text.strip()
