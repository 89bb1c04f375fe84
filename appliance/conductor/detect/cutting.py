"""Where in some texts things stand, for whoever has to cut them out.

Only what stands in plain sight has a place. So all that was found is taken out, and what is left is
scanned as any body is: whatever that finds is hidden, in a disguise or dealt out over the texts.
"""

from __future__ import annotations

from collections.abc import Callable

from conductor.core import Likelihood, Scan
from conductor.detect.detectors import NAMES, profile_rules, rule_set
from conductor.detect.naming import Names
from conductor.detect.profile import Profile
from conductor.detect.rules import TooManyCandidates
from conductor.detect.spans import Span, Spans, sought, united

_CUT = "\ufffc"
"""Stands for what was taken out: the object replacement character, part of nothing sought."""

_CONTINUATIONS = bytes(range(0x80, 0xC0))


def find_spans(
    texts: list[str],
    types: frozenset[str],
    profile: Profile,
    names: Names | None,
    rescan: Callable[[object], Scan],
) -> Spans:
    """The spans of each text; `types` are detectors or their beginnings.

    `rescan` scans a body by all rules. Raises what a fault in a detector raises.
    """
    named = any(sought(name, types) for name in NAMES)
    complete = not named or names is not None
    found: list[tuple[Span, ...]] = []
    for text in texts:
        spans = []
        try:
            spans = _by_rules(text, lambda detector: sought(detector, types), profile)
        except TooManyCandidates:
            complete = False
        if named and names is not None:
            people, reason = names.read(text)
            spans += [span for span in people if sought(span.detector, types)]
            complete = complete and reason is None
        found.append(united(spans))
    rest = rescan([_without(text, own) for text, own in zip(texts, found, strict=True)])
    hidden = any(
        sought(finding.detector, types) and finding.likelihood >= Likelihood.POSSIBLE
        for finding in rest.findings
    )
    return Spans(tuple(found), complete and not rest.unscanned, hidden)


def _without(text: str, spans: tuple[Span, ...]) -> str:
    pieces, position = [], 0
    for span in spans:
        pieces += [text[position : span.start], _CUT]
        position = span.end
    return "".join(pieces) + text[position:]


def _by_rules(text: str, wanted: Callable[[str], bool], profile: Profile) -> list[Span]:
    """Hits of the rules, from bytes to characters."""
    data = text.encode("utf-8", "surrogatepass")
    hits = list(rule_set().find(data, wanted))
    if (own := profile_rules(profile)) is not None:
        hits += own.find(data, wanted)
    place = _places(text, data)
    return [Span(place(hit.start), place(hit.end), hit.detector, hit.likelihood) for hit in hits]


def _places(text: str, data: bytes) -> Callable[[int], int]:
    """From an offset in UTF-8 to one in characters: bytes that begin one are counted."""
    if len(text) == len(data):
        return lambda offset: offset
    return lambda offset: len(data[:offset].translate(None, _CONTINUATIONS))
