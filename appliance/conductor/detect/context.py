"""What stands around a match: telling words nearby, and whether it is part of something longer."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import cache

from conductor.core import Likelihood
from conductor.detect.rules import Weigh

WITHIN = 80
"""Bytes before and after a match in which a word counts as near it."""

_UUID = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_HEX_TOKEN = re.compile(rb"[0-9a-fA-F]{20,}\Z")
_ALNUM = (string.ascii_letters + string.digits).encode()

Near = Callable[[bytes, int, int], bool]


def near(words: tuple[str, ...], within: int = WITHIN) -> Near:
    """Whether any of `words`, in lower case, stands near a match: alone, or before a digit."""
    coded = tuple(word.encode() for word in words)
    pattern = _any_of(coded)

    def is_near(text: bytes, start: int, end: int) -> bool:
        around = text[max(0, start - within) : start] + b"\n" + text[end : end + within]
        around = around.lower()
        for word in coded:  # a plain search for each is quicker than one for all that finds none
            if word in around:
                return pattern.search(around) is not None
        return False

    return is_near


@cache
def _any_of(words: tuple[bytes, ...]) -> re.Pattern[bytes]:
    alternatives = b"|".join(map(re.escape, sorted(words)))
    return re.compile(rb"(?<![a-z\x80-\xff])(?:" + alternatives + rb")(?![a-z\x80-\xff])")


def weighed(
    words: tuple[str, ...], alone: Likelihood | None, told: Likelihood, within: int = WITHIN
) -> Weigh:
    """As likely as `told` where one of `words` is near, else as `alone`."""
    if alone is told:
        return lambda text, start, end: told
    is_near = near(words, within)

    def weigh(text: bytes, start: int, end: int) -> Likelihood | None:
        return told if is_near(text, start, end) else alone

    return weigh


def in_identifier(text: bytes, start: int, end: int) -> bool:
    """Whether the bytes are a piece of a hexadecimal digest or of a UUID."""
    before, after = text[max(0, start - 64) : start], text[end : end + 64]
    around = before[len(before.rstrip(_ALNUM)) :] + after[: len(after) - len(after.lstrip(_ALNUM))]
    if around and text[start:end].isdigit() and _HEX_TOKEN.match(around + text[start:end]):
        return True
    if b"-" not in before[-1:] + after[:1] + text[start:end]:
        return False
    window = max(0, start - 36)
    return any(
        uuid.start() < end and start < uuid.end() for uuid in _UUID.finditer(text, window, end + 36)
    )


def in_fraction(text: bytes, start: int, end: int) -> bool:
    """Whether they are digits behind a decimal point."""
    return (
        text[max(0, start - 1) : start] in (b".", b",")
        and text[max(0, start - 2) : start - 1].isdigit()
    )


def in_longer_number(text: bytes, start: int, end: int) -> bool:
    """Whether more digits follow or precede after a mark: a date, a version, a longer account."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    return (before[1:] in _MARKS and before[:1].isdigit()) or (
        after[:1] in _MARKS and after[1:].isdigit()
    )


_MARKS = (b".", b",", b"-", b"/", b"_", b":")
