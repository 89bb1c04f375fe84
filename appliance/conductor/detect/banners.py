"""Whether words are a banner: a short line in capitals at the head or foot of a text.

Or the value of a field that is called so. The same words within a sentence are no marking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from conductor.core import Likelihood
from conductor.detect.canonical import BREAK

_MAX_WORDS = 8
_MAX_LINE = 160
_EDGE_LINES = 5
_CAPITALS = 0.7
"""Share of a banner's letters that are capitals."""

_BREAK = BREAK.encode()
_FIELD = re.compile(
    rb"(?i)(?:classification|classified|marking|sensitivity|protective[ _\-]marking"
    rb"|security[ _\-]level|sensitivity[ _\-]label|einstufung|classifica(?:zione)?"
    rb"|clasificaci\S{1,2}n|handling|caveat)"
    rb"[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"'(\[]{0,2}\Z"
)
_KEY = re.compile(rb"\A[\w.\-]{1,60}: ")
"""What a member of a body begins with: its name is no part of its text."""

_DECORATION = re.compile(rb"[\s*#=_|>\-~.:()\[\]<\"']+")
_ACCOMPANY = frozenset(
    b"UK US USA EU NATO EYES ONLY NOFORN REL TO ORCON SI TK HCS FVEY PROPIN IMCON FGI UE PAGE OF "
    b"COPY DRAFT FINAL CLASSIFICATION CLASSIFIED LEVEL MARKING DOCUMENT WHEN FILLED ENCLOSED "
    b"SECRET TOP CONFIDENTIAL RESTRICTED OFFICIAL SENSITIVE PERSONAL COMMERCIAL RECIPIENTS VS "
    b"STRICTLY COMPANY INTERNAL USE PRIVATE AND PRIVILEGED HANDLE WITH CARE DO NOT DISTRIBUTE "
    b"COPIA PAGINA DI SEITE VON AMTLICH GEHEIMGEHALTEN".split()
)


def _words(text: bytes) -> list[bytes]:
    return [word for word in _DECORATION.split(text.replace(b"/", b" ")) if word]


def _line(text: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The line around a match; None if it is too long for a banner."""
    low = max(0, start - _MAX_LINE)
    high = min(len(text), end + _MAX_LINE)
    first = max(text.rfind(b"\n", low, start), text.rfind(_BREAK, low, start)) + 1
    if first == 0 and low > 0:
        return None
    ends = [at for mark in (b"\n", _BREAK) if (at := text.find(mark, end, high)) >= 0]
    if not ends and high < len(text):
        return None
    return max(first, low), min(ends, default=high)


def _at_edge(text: bytes, first: int, last: int) -> bool:
    """Whether a line is among the first or the last few of its text that are not empty."""
    return _few(_lines_before(text, first)) or _few(_lines_after(text, last))


def _few(lines: Iterator[bytes]) -> bool:
    return sum(1 for line in lines if line.strip()) < _EDGE_LINES


def _lines_before(text: bytes, at: int) -> Iterator[bytes]:
    """Up to 40 lines before `at`, the nearest first, no further than the text goes."""
    for _ in range(40):
        if at <= 0 or text[at - 1 : at] == _BREAK:
            return
        previous = max(text.rfind(b"\n", 0, at - 1), text.rfind(_BREAK, 0, at - 1)) + 1
        yield text[previous : min(at, previous + _MAX_LINE)]
        at = previous
    yield from [b"more"] * _EDGE_LINES


def _lines_after(text: bytes, at: int) -> Iterator[bytes]:
    for _ in range(40):
        if at >= len(text) or text[at : at + 1] == _BREAK:
            return
        ends = [end for mark in (b"\n", _BREAK) if (end := text.find(mark, at + 1)) >= 0]
        following = min(ends, default=len(text))
        yield text[at + 1 : min(following, at + 1 + _MAX_LINE)]
        at = following
    yield from [b"more"] * _EDGE_LINES


def banner(text: bytes, start: int, end: int) -> Likelihood | None:
    """How likely a match is a banner, or the value of a field for markings; None: it is neither.

    A line of other words beside it is a title as often as a banner: possible.
    """
    if _FIELD.search(text[max(0, start - 48) : start]):
        return Likelihood.VERY_LIKELY
    line = _line(text, start, end)
    if line is None or text[start:end] != text[start:end].upper():
        return None
    whole = text[line[0] : line[1]]
    if line[0] == 0 or text[line[0] - 1 : line[0]] == _BREAK:
        whole = _KEY.sub(b"", whole)
    words = _words(whole)
    letters = re.sub(rb"[^A-Za-z]", b"", whole)
    capitals = sum(map(letters.count, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    if len(words) > _MAX_WORDS or capitals < _CAPITALS * len(letters):
        return None
    if re.search(rb"[A-Za-z0-9][_=(\[{]|[_=]\S", whole) or not _at_edge(text, *line):
        return None
    inside = set(_words(text[start:end]))
    strange = [w for w in words if w not in _ACCOMPANY and w not in inside and not w.isdigit()]
    return Likelihood.POSSIBLE if strange else Likelihood.VERY_LIKELY


_MORE = re.compile(rb"[ \t]?//|[ \t]UE\b|[ \t]?[\-:][ \t]?SENSITIVE")
"""What makes another marking of the words before it; and so do words before them:"""
_OTHERS = frozenset(b"TOP NATO EU UE TRADE COSMIC STRICTLY TRES UK STRENG FOR VS-".split())
_GREATER = frozenset((b"TOP", b"TRES", "TR\u00c8S".encode()))


def is_whole(text: bytes, start: int, end: int) -> bool:
    """Whether the words are not a part of another marking, as SECRET is of TOP SECRET."""
    return _word_before(text, start) not in _OTHERS and not _MORE.match(text, end)


def is_whole_form(text: bytes, start: int, end: int) -> bool:
    """The same of a form that counts anywhere."""
    return _word_before(text, start) not in _GREATER


def _word_before(text: bytes, start: int) -> bytes:
    words = text[max(0, start - 12) : start].replace(b"/", b" ").upper().split()
    return words[-1] if words else b""
