"""From what the tagger says of pieces to spans of persons and addresses. Pure.

A name may be several pieces and each of them may claim to begin one ("Kat|hari|na"), so a word
takes the best label of its pieces first, and neighbouring words of one kind are joined after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conductor.core import Likelihood
from conductor.detect.spans import Span

PERSON, ADDRESS = "person", "address"
KINDS: dict[str, str] = {
    "GIVEN_NAME": PERSON,
    "SURNAME": PERSON,
    "BUILDING_NUMBER": ADDRESS,
    "STREET_NAME": ADDRESS,
    "SECONDARY_ADDRESS": ADDRESS,
    "CITY": ADDRESS,
    "STATE": ADDRESS,
    "ZIP_CODE": ADDRESS,
}
"""The tagger's labels that count here, and as what."""

_SURE = (
    (0.9, Likelihood.VERY_LIKELY),
    (0.7, Likelihood.LIKELY),
    (0.4, Likelihood.POSSIBLE),
    (0.0, Likelihood.UNLIKELY),
)
_GAPS = {
    PERSON: re.compile(r"[\s.'’\-]{0,3}"),
    ADDRESS: re.compile(r"[\s.,;:/|\-–]{0,4}(?:n[°ºr]\.?\s)?"),
}
"""What may stand between two words of one span."""
_WHOLE = (
    frozenset({"STREET_NAME", "BUILDING_NUMBER"}),
    frozenset({"STREET_NAME", "ZIP_CODE"}),
    frozenset({"STREET_NAME", "CITY"}),
    frozenset({"ZIP_CODE", "CITY"}),
)
"""Parts that make an address together: a street alone is unlikely one, a town or a number none."""


@dataclass(frozen=True)
class Word:
    """A word and the label it took; offsets in characters of the whole text."""

    start: int
    end: int
    label: str
    probability: float

    def moved(self, by: int) -> Word:
        """The same word of a text in which its window begins `by` characters in."""
        return Word(self.start + by, self.end + by, self.label, self.probability)


def spans_of(text: str, words: Iterable[Word]) -> list[Span]:
    """Spans of the words, which are in order.

    The tagger does not see capitals. Where a text uses them, one small word alone is at most
    possibly a name, and so is one that hangs on another as in `row.price`; in a text that has no
    capitals, as people type in a hurry, it may be a likely one.
    """
    spans, uses_capitals = [], text != text.lower()
    for group in _groups(text, words):
        likelihood = _likelihood(group)
        if likelihood is not None:
            if len(group) == 1 and _doubtful(text, group[0].start, uses_capitals):
                likelihood = min(likelihood, Likelihood.POSSIBLE)
            spans.append(Span(group[0].start, group[-1].end, KINDS[group[0].label], likelihood))
    return spans


def _doubtful(text: str, start: int, uses_capitals: bool) -> bool:
    """Whether a word is small where names are not, or hangs on another one as in code."""
    hangs = start > 1 and text[start - 1] in "._/" and text[start - 2].isalnum()
    return hangs or (uses_capitals and text[start].islower())


def _likelihood(group: list[Word]) -> Likelihood | None:
    """How sure it is that these words are a name or an address; None when they are not one."""
    sure = max(word.probability for word in group)
    likelihood = next(word for limit, word in _SURE if sure >= limit)
    labels = {word.label for word in group}
    if KINDS[group[0].label] == PERSON or any(parts <= labels for parts in _WHOLE):
        return likelihood
    return Likelihood.UNLIKELY if "STREET_NAME" in labels else None


def _groups(text: str, words: Iterable[Word]) -> list[list[Word]]:
    groups: list[list[Word]] = []
    for word in words:
        if not groups or not _joins(text, groups[-1][-1], word):
            groups.append([])
        groups[-1].append(word)
    return groups


def _joins(text: str, last: Word, word: Word) -> bool:
    kind = KINDS[last.label]
    gap = text[last.end : word.start]
    return kind == KINDS[word.label] and _GAPS[kind].fullmatch(gap) is not None


def merged(found: Sequence[Word]) -> list[Word]:
    """Words of overlapping windows in order: where two say something of a place, the surer one."""
    best: dict[int, Word] = {}
    for word in found:
        other = best.get(word.start)
        if other is None or word.probability > other.probability:
            best[word.start] = word
    return [best[start] for start in sorted(best)]
