"""From what was found in a text to what is cut out of it, and putting something in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from conductor.declassify.kinds import kind_of
from conductor.detect.spans import Span, united

Range = tuple[int, int]
Change = tuple[int, int, str]
"""Characters from start to end, and what stands there from now on."""


def cuts(text: str, spans: Iterable[Span], kept: Sequence[Range] = ()) -> list[Span]:
    """What to cut out: in order, apart from each other, outside the ranges in `kept`, and with
    something to read in it. Overlapping spans are one, under the name of the longest; so are
    neighbouring words of one kind: `Anna` and `Rossi` are one person.
    """
    inside = (
        Span(max(span.start, 0), min(span.end, len(text)), span.detector, span.likelihood)
        for span in spans
    )
    whole = _joined(text, united(span for span in inside if span.start < span.end))
    found = (part for span in whole for part in _outside(span, kept))
    return [part for part in (_trimmed(text, part) for part in found) if part.start < part.end]


def changed(text: str, changes: Iterable[Change]) -> str:
    """`text` after the changes, which do not overlap."""
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(changes):
        parts += (text[done:start], new)
        done = end
    return "".join((*parts, text[done:]))


def _joined(text: str, spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last and _is_one(text, last, span):
            joined[-1] = Span(last.start, span.end, last.detector, last.likelihood)
        else:
            joined.append(span)
    return joined


def _is_one(text: str, last: Span, span: Span) -> bool:
    return (
        text[last.end : span.start] in ("", " ")
        and last.detector == span.detector
        and kind_of(span.detector) in ("PERSON", "ADDRESS")
    )


def _outside(span: Span, kept: Sequence[Range]) -> Iterator[Span]:
    """What is left of a span without the kept ranges, which are in order."""
    start = span.start
    for first, last in kept:
        if last <= start or first >= span.end:
            continue
        if start < first:
            yield Span(start, first, span.detector, span.likelihood)
        start = last
    if start < span.end:
        yield Span(start, span.end, span.detector, span.likelihood)


def _trimmed(text: str, span: Span) -> Span:
    """A span without the space at its ends."""
    value = text[span.start : span.end]
    start = span.start + len(value) - len(value.lstrip())
    return Span(start, max(start, span.start + len(value.rstrip())), span.detector)
