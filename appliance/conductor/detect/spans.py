"""Where something was found: the one place of this room that knows positions.

Spans are for declassifiers, which must cut a thing out. They never leave the process that asked
for them, and say nothing of what stands there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from conductor.core import Likelihood


@dataclass(frozen=True, order=True)
class Span:
    """That characters `start` to `end` of a text are something. Offsets are in characters."""

    start: int
    end: int
    detector: str
    likelihood: Likelihood = Likelihood.VERY_LIKELY


@dataclass(frozen=True)
class Spans:
    """What was sought in some texts: for each its spans, in order, none overlapping another.

    Without `complete` something was left unread. `hidden` says that something else is there, seen
    only behind a disguise or over several texts: cutting the spans out is not enough.
    """

    per_text: tuple[tuple[Span, ...], ...]
    complete: bool
    hidden: bool = False


def sought(detector: str, types: Iterable[str]) -> bool:
    """Whether a detector is one of `types`, which may be ids or their beginnings: `secret`."""
    return any(detector == kind or detector.startswith(kind + ".") for kind in types)


def united(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans in order; those that overlap become one, named by the longest of them."""
    merged: list[Span] = []
    for span in sorted(spans):
        if not merged or span.start >= merged[-1].end:
            merged.append(span)
            continue
        last = merged.pop()
        name = last if last.end - last.start >= span.end - span.start else span
        likelihood = max(last.likelihood, span.likelihood)
        merged.append(Span(last.start, max(last.end, span.end), name.detector, likelihood))
    return tuple(merged)
