"""Every mention of what was found somewhere: a detector may see a name once and miss it twice.

A name stands out in `Dear Anna Rossi`, and much less in a list or where a sentence breaks off; a
number may count only beside a hotword. What one text gave away is therefore sought in all of them,
letter by letter but for case, spaces and dashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conductor.detect.spans import Span

MAX_VALUES = 2_000
"""Values sought at once. More than a text is likely to hold, and a bound on the automaton."""

_PERSON = "person"
_SHORTEST = 4
"""Shorter values are also parts of other words' surroundings: `Al`, `12`."""
_LONGEST = 200
_PARTS = re.compile(r"[\s\-‐‑]+")
_BETWEEN = r"[\s\x{a0}\-‐‑]{1,4}"
_MAX_MEMORY = 64 << 20


def with_mentions(
    texts: Sequence[str],
    found: Sequence[Iterable[Span]],
    known: Mapping[str, str] | None = None,
) -> list[list[Span]]:
    """The spans of each text, and with them all mentions of values that any of the spans, or
    `known` (value to detector), name. Spans may overlap then: whatever cuts unites them.
    """
    spans = [list(one) for one in found]
    values: dict[str, _Sought] = {}
    for text, one in zip(texts, spans, strict=True):
        for span in one:
            _note_all(values, text[max(0, span.start) : max(0, span.end)], span.detector)
    for value, detector in (known or {}).items():
        _note_all(values, value, detector)
    pattern = _pattern([one.words for one in values.values()])
    if pattern is None:
        return spans
    return [[*one, *_in(text, pattern, values)] for text, one in zip(texts, spans, strict=True)]


@dataclass(frozen=True)
class _Sought:
    words: tuple[str, ...]
    detector: str


def _note_all(values: dict[str, _Sought], value: str, detector: str) -> None:
    """Add a value; of a person's name also each part that is written large: `Rossi`."""
    _note(values, value, detector)
    parts = _PARTS.split(value) if detector == _PERSON else ()
    for part in parts if len(parts) > 1 else ():
        if part[:1].isupper():
            _note(values, part, detector)


def _note(values: dict[str, _Sought], value: str, detector: str) -> None:
    """Add a value to those sought, unless it is too short to tell, or there are too many."""
    words = tuple(filter(None, _PARTS.split(value)))
    if _SHORTEST <= len(value.strip()) <= _LONGEST and len(values) < MAX_VALUES:
        values.setdefault(_plain(value), _Sought(words, detector))


def _plain(value: str) -> str:
    return _PARTS.sub(" ", value).strip().casefold()


def _pattern(values: list[tuple[str, ...]]) -> Any:
    """One automaton for all values; None without any, or when they take too much memory."""
    import re2

    if not values:
        return None
    options = re2.Options()
    options.case_sensitive = False
    options.longest_match = True
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    written = (_BETWEEN.join(map(re2.escape, words)) for words in values if words)
    try:
        return re2.compile("|".join(written), options)
    except re2.error:
        return None


def _in(text: str, pattern: Any, values: Mapping[str, _Sought]) -> Iterator[Span]:
    for match in pattern.finditer(text):
        # RE2 may take for one letter what Python does not: then the kind is not known.
        value = values.get(_plain(match[0]), _Sought((), "custom"))
        if _stands_alone(text, *match.span()) and not _is_common(match[0], value):
            yield Span(match.start(), match.end(), value.detector)


def _is_common(mention: str, value: _Sought) -> bool:
    """Whether it is rather an ordinary word: `will`, where Will is a name."""
    return len(value.words) == 1 and mention.islower() and not value.words[0].islower()


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether it is no part of a longer word or number."""
    return not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum())
