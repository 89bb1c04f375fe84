"""Where a long text may be cut for the tagger, and whether it can read the script. Pure.

Windows end at a blank line or a sentence's end where there is one, and then share nothing; where
there is none they overlap, so that a name across the cut stands whole in one of the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

WINDOW = 480
"""Characters of a window: about 110 pieces, at most 480 in Latin script."""
OVERLAP = 64
"""Characters that two windows share where the text had no end of a sentence to cut at."""

_MIN = WINDOW // 3
_CLEAN = re.compile(r"\n[ \t\r]*\n+|(?<=[^\W\d_]{5}[.!?])[\s\"'”’)]+(?=[^\W\d_a-zà-ÿ])")
"""After these no name goes on: a blank line; a long word, its full stop, and a capital letter."""
_ROUGH = re.compile(r"\n|[,;:)]?\s")

_LATIN = "A-Za-zªºÀ-ÖØ-öø-ʯˆ-˭ᴀ-ᶿḀ-ỿⁱⁿⱠ-Ɀ꜠-ꟿﬀ-ﬆＡ-Ｚａ-ｚ¹²³¼-¾⁰-₟⅐-↋①-⓿"
"""Latin letters, and numbers that the regex library takes for letters: ², ½, ①."""
_SYMBOL = "µͰ-Ͽ℀-⅏𝐀-𝟿"
_FOREIGN = re.compile(rf"(?:(?![{_LATIN}])[^\W\d_]){{2}}|(?![{_LATIN}{_SYMBOL}])[^\W\d_]")
"""Letters that are not Latin; a Greek or a mathematical one alone is a symbol, as in 5 µm."""


def foreign(text: str) -> bool:
    """Whether some of the text is in a script that the tagger was not taught."""
    return not text.isascii() and _FOREIGN.search(text) is not None


def windows(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of every window, in order; together they cover the text."""
    start = 0
    while len(text) - start > WINDOW:
        end, following = _cut(text, start)
        yield start, end
        start = following
    if start < len(text):
        yield start, len(text)


def _cut(text: str, start: int) -> tuple[int, int]:
    """Where this window ends and the next one begins; the next one is always further on."""
    low, high = start + _MIN, start + WINDOW
    clean = [match.end() for match in _CLEAN.finditer(text, low, high)]
    if clean:
        return clean[-1], clean[-1]
    end = _last(text, low, high) or high
    return end, _last(text, end - OVERLAP - 16, end - OVERLAP) or end - OVERLAP


def _last(text: str, low: int, high: int) -> int | None:
    """The last place between words, if there is one."""
    found = None
    for match in _ROUGH.finditer(text, low, high):
        found = match.end()
    return found
