"""Redaction: what was found is cut out for good, and a word says what stood there.

The word is no token: in other brackets, in small letters, without a colon. Nothing restores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conductor.declassify.kinds import kind_of
from conductor.declassify.mentions import with_mentions
from conductor.declassify.pieces import changed, cuts
from conductor.detect.spans import Span


def redact(text: str, spans: Iterable[Span]) -> str:
    """`text` with a marker for every span: `Write to [email removed].`"""
    found = cuts(text, spans)
    return changed(text, [(cut.start, cut.end, marker(kind_of(cut.detector))) for cut in found])


def redact_all(texts: Sequence[str], found: Sequence[Iterable[Span]]) -> list[str]:
    """All texts of one body, with the spans found in each. What one gives away goes in all."""
    pairs = zip(texts, with_mentions(texts, found), strict=True)
    return [redact(text, spans) for text, spans in pairs]


def marker(kind: str) -> str:
    """What stands where something of that kind was."""
    return f"[{kind.lower()} removed]"
