"""What a detection rule is, and how all rules are searched at once.

A `RuleSet` compiles the gates of all rules into one RE2 set: one pass says which rules could fire,
and only those are then searched alone and judged. RE2 takes linear time on any text, so no input
can make a rule explode. Texts are bytes: UTF-8 read as Latin-1, which keeps the automaton small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from conductor.core import Likelihood

MAX_CANDIDATES = 50_000
"""Matches judged per rule and text: about half a second. More is `TooManyCandidates`."""

MAX_COUNT = 1_000
"""A finding's count stops here: the kind matters, and a list of a million cards need not."""

_SET_BYTES = 256 << 20
"""Upper bound, not a reservation, on the automaton's memory; RE2's own 8 MiB fails to build."""


class TooManyCandidates(Exception):
    """More matches to judge than the bound: the text must count as not scanned."""


class SearchFailed(Exception):
    """The automaton gave up, for want of memory: nothing is known of the text."""


ALWAYS = rb"\A"
"""The first pattern of every set. RE2 answers alike when nothing matches and when it gives up;
without this match, it gave up."""


def fired(gates: Any, text: bytes) -> list[int]:
    """Which patterns of a set occur, counted without `ALWAYS`. Raises `SearchFailed`."""
    found = gates.Match(text) or ()
    if 0 not in found:
        raise SearchFailed
    return [index - 1 for index in found if index]


Accept = Callable[[bytes, int, int], bool]
"""Whether the bytes from start to end of a text are what a rule looks for: a checksum, say."""
Weigh = Callable[[bytes, int, int], Likelihood | None]
"""How likely they are it, by what stands around them; None when that speaks against it."""
Extent = Callable[[bytes, int, int], tuple[int, int]]
"""From where to where the whole thing goes of which a rule has matched a part."""


def _anything(text: bytes, start: int, end: int) -> bool:
    return True


def certain(text: bytes, start: int, end: int) -> Likelihood | None:
    """What a shape is that nothing else has."""
    return Likelihood.VERY_LIKELY


def as_matched(text: bytes, start: int, end: int) -> tuple[int, int]:
    """What a rule is that matches the whole thing."""
    return start, end


@dataclass(frozen=True)
class Rule:
    """One shape to look for.

    `patterns` are searched once `gate` was seen; the gate is what the set holds, so it must match
    wherever a pattern does, and be free of large repetition counts. Group 1, if there is one, is
    the thing itself, and the rest its surroundings. `accept` judges it: a checksum, an entropy.
    `weigh` says how likely it is, once accepted.
    """

    detector: str
    gate: str
    patterns: tuple[str, ...] = ()
    accept: Accept = _anything
    weigh: Weigh = certain
    extent: Extent = as_matched
    look_inside: bool = False
    """After a refusal, search on from the match's second byte: for patterns of bounded length."""
    distinct: bool = False
    """So unlike other text that it may be sought where spaces and dashes have been removed."""


@dataclass(frozen=True)
class Hit:
    """One thing found: where in the text, in bytes, and how likely."""

    detector: str
    start: int
    end: int
    likelihood: Likelihood


Encoding = Literal["latin1", "utf8"]


def options(encoding: Encoding = "latin1") -> Any:
    """RE2 options for texts of bytes. Errors are raised, not written to standard error."""
    import re2

    chosen = re2.Options()
    chosen.max_mem = _SET_BYTES
    chosen.log_errors = False
    encodings = re2.Options.Encoding
    chosen.encoding = encodings.UTF8 if encoding == "utf8" else encodings.LATIN1
    return chosen


class RuleSet:
    """Compiled rules. Building takes some milliseconds; searching is safe from any thread."""

    def __init__(self, rules: Collection[Rule], encoding: Encoding = "latin1") -> None:
        import re2

        chosen = options(encoding)
        coded = "latin-1" if encoding == "latin1" else "utf-8"
        self._rules = tuple(rules)
        self._gates = re2.Set.SearchSet(chosen)
        self._gates.Add(ALWAYS)
        self._patterns: list[tuple[tuple[Any, int], ...]] = []
        for rule in self._rules:
            self._gates.Add(rule.gate.encode(coded))
            sought = rule.patterns or (rule.gate,)
            compiled = [re2.compile(pattern.encode(coded), chosen) for pattern in sought]
            self._patterns.append(tuple((pattern, min(pattern.groups, 1)) for pattern in compiled))
        self._gates.Compile()

    @property
    def gates(self) -> tuple[str, ...]:
        """What the set looks for, a pattern for each rule."""
        return tuple(rule.gate for rule in self._rules)

    def search(
        self,
        text: bytes,
        skip: Collection[str] = (),
        *,
        max_candidates: int = MAX_CANDIDATES,
    ) -> Counter[tuple[str, Likelihood]]:
        """Count what fires in `text`, by detector and likelihood; `skip` is not looked for.

        Raises `TooManyCandidates` when a rule has more than `max_candidates` matches to judge.
        """
        found: Counter[tuple[str, Likelihood]] = Counter()
        for index in fired(self._gates, text):
            rule = self._rules[index]
            if rule.detector in skip:
                continue
            starts: dict[int, Likelihood] = {}
            for start, _, likelihood in self._judged(index, text, max_candidates):
                starts[start] = max(likelihood, starts.get(start, likelihood))
                if len(starts) >= MAX_COUNT:
                    break
            found.update((rule.detector, likelihood) for likelihood in starts.values())
        return found

    def find(self, text: bytes, wanted: Callable[[str], bool]) -> Iterator[Hit]:
        """Every hit of the detectors that are `wanted`, in whole. Raises `TooManyCandidates`."""
        for index in fired(self._gates, text):
            rule = self._rules[index]
            if not wanted(rule.detector):
                continue
            for start, end, likelihood in self._judged(index, text, MAX_CANDIDATES):
                yield Hit(rule.detector, *rule.extent(text, start, end), likelihood)

    def _judged(
        self, index: int, text: bytes, max_candidates: int
    ) -> Iterator[tuple[int, int, Likelihood]]:
        """Start, end and likelihood of what one rule accepts, pattern by pattern."""
        rule = self._rules[index]
        judged = 0
        for pattern, group in self._patterns[index]:
            position = 0
            while (match := pattern.search(text, position)) is not None:
                start, end = match.span(group)
                accepted = rule.accept(text, start, end)
                if accepted and (likelihood := rule.weigh(text, start, end)):
                    yield start, end, likelihood
                if accepted or not rule.look_inside:
                    position = max(end, position + 1)
                else:
                    position = match.start() + 1
                judged += 1
                if judged > max_candidates:
                    raise TooManyCandidates(rule.detector)
