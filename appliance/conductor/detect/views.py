"""One document, searched in every view of it and in what is encoded within.

A detector is sought in the next view unless it has been found for certain; what was found is told
once for each detector and likelihood, under the view that showed it first.
"""

from __future__ import annotations

from collections.abc import Collection

from conductor.core import Finding, Likelihood
from conductor.detect.canonical import fold, overridden, squeeze, undressed, unwrap
from conductor.detect.decoding import TooLarge, decode, holds_opaque_data
from conductor.detect.detectors import DETECTORS, distinct_rule_set, grouped_rule_set
from conductor.detect.grouping import grouped
from conductor.detect.rules import MAX_CANDIDATES, RuleSet, TooManyCandidates


def _detectors(*beginnings: str) -> frozenset[str]:
    return frozenset(name for name in DETECTORS if name.startswith(beginnings))


_BROKEN_BY_LINES = _detectors("secret.generic", "email", "id.", "phone", "ip", "marking.")
"""Not sought across a line's end, nor in a list read as one: `password:` has a sentence below it,
`x` a `@decorator.of`, and two numbers of a column make a third."""

_BROKEN_BY_MARKS = _detectors("secret.generic")
"""Not sought where mark-up is taken away: what stands behind `password:` may be a new thing."""

_BROKEN_BY_TURNS = _detectors("marking.")
"""Not sought in turns set side by side: a banner has a line of its own."""


class Views:
    """Findings of one scan, gathered document by document."""

    def __init__(
        self,
        rules: RuleSet,
        own: RuleSet | None,
        decode_limit: int,
        max_candidates: int = MAX_CANDIDATES,
    ) -> None:
        self.unscanned: set[str] = set()
        self._rules = rules
        self._own = own
        self._decode_limit = decode_limit
        self._max_candidates = max_candidates
        self._found: dict[tuple[str, Likelihood], Finding] = {}
        self._certain: set[str] = set()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found so far, in the order of finding."""
        return tuple(self._found.values())

    def note(self, detector: str, likelihood: Likelihood, count: int, view: str) -> None:
        """Take down a finding; the first one of a detector and likelihood stands."""
        key = detector, likelihood
        self._found.setdefault(key, Finding(detector, count, view, likelihood))
        if likelihood is Likelihood.VERY_LIKELY:
            self._certain.add(detector)

    def document(self, name: str, document: str, depth: int) -> bytes:
        """Search a document of a reading and `depth` layers of what is encoded in it.

        Gives the first of those layers.
        """
        text = document.encode("utf-8", "ignore")
        if name == "adjacent":
            for squeezed in squeeze(fold(text)):
                self._search(name, squeezed, rules=distinct_rule_set())
            return b""
        view, first = name, b""
        for level in range(depth + 1):
            if not text:
                break
            if view == "rows":
                self._search(view, text, without=_BROKEN_BY_LINES)
            else:
                text = self._views(view, text)
            if name != "joined" and holds_opaque_data(text):  # no picture spans two messages
                self.unscanned.add("data-url")
            text, view = self._decoded(text), "decoded"
            first = first or text
            if text and level == depth:
                self.unscanned.add("decoded-too-deep")
        return first

    def _views(self, view: str, text: bytes) -> bytes:
        """Search a text as it stands and with its disguises off; give it in plain characters."""
        self._own_too(view, text, _BROKEN_BY_TURNS if view == "joined" else frozenset())
        folded = fold(text)
        if folded != text:
            self._own_too("canonical", folded)
        lines = unwrap(folded)
        if len(lines) < len(folded):
            self._search("lines", lines, without=_BROKEN_BY_LINES)
        shown = undressed(folded)
        if len(shown) < len(folded):
            self._own_too("shown", shown, _BROKEN_BY_MARKS)
        if overridden(text):
            self._own_too("reversed", folded[::-1])
        for squeezed in squeeze(folded):
            self._search("squeezed", squeezed, rules=distinct_rule_set())
        if numbers := grouped(folded):
            self._search("grouped", numbers, rules=grouped_rule_set())
        return folded

    def _own_too(self, view: str, text: bytes, without: frozenset[str] = frozenset()) -> None:
        """Search by all rules, in a view that keeps words apart: by those of the policy too."""
        self._search(view, text, without=without)
        if self._own is not None:
            self._search(view, text, rules=self._own)

    def _decoded(self, text: bytes) -> bytes:
        try:
            decoded = decode(text, self._decode_limit)
        except TooLarge:
            self.unscanned.add("decoded-too-long")
            return b""
        self._decode_limit -= len(decoded)
        return decoded

    def _search(
        self,
        view: str,
        text: bytes,
        *,
        without: Collection[str] = frozenset(),
        rules: RuleSet | None = None,
    ) -> None:
        skip = self._certain.union(without) if without else self._certain
        try:
            found = (rules or self._rules).search(text, skip, max_candidates=self._max_candidates)
        except TooManyCandidates:
            self.unscanned.add("too-many-candidates")
            return
        for (detector, likelihood), count in found.items():
            self.note(detector, likelihood, count, view)
