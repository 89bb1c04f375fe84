"""What a detection rule is, and how all rules are searched at once.

A `RuleSet` compiles the gates of all rules into one RE2 set: one pass says which rules could fire,
and only those are then searched alone and judged. RE2 takes linear time on any text, so no input
can make a rule explode. Texts are bytes: UTF-8 read as Latin-1, which keeps the automaton small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

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


def _anything(text: bytes, start: int, end: int) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """One shape to look for.

    `patterns` are searched once `gate` was seen; the gate is what the set holds, so it must match
    wherever a pattern does, and be free of large repetition counts. Group 1, if there is one, is
    the thing itself, and the rest its surroundings. `accept` judges it: a checksum, an entropy.
    """

    detector: str
    gate: str
    patterns: tuple[str, ...] = ()
    accept: Callable[[bytes, int, int], bool] = _anything
    look_inside: bool = False
    """After a refusal, search on from the match's second byte: for patterns of bounded length."""
    distinct: bool = False
    """So unlike other text that it may be sought where spaces and dashes have been removed."""


class RuleSet:
    """Compiled rules. Building takes some milliseconds; searching is safe from any thread."""

    def __init__(self, rules: Collection[Rule]) -> None:
        import re2

        options = re2.Options()
        options.max_mem = _SET_BYTES
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        self._rules = tuple(rules)
        self._gates = re2.Set.SearchSet(options)
        self._gates.Add(ALWAYS)
        self._patterns: list[tuple[Any, ...]] = []
        for rule in self._rules:
            self._gates.Add(rule.gate.encode("latin-1"))
            sought = rule.patterns or (rule.gate,)
            self._patterns.append(
                tuple(re2.compile(pattern.encode("latin-1"), options) for pattern in sought)
            )
        self._gates.Compile()

    def search(
        self,
        text: bytes,
        skip: Collection[str] = (),
        *,
        distinct_only: bool = False,
        max_candidates: int = MAX_CANDIDATES,
    ) -> Counter[str]:
        """Count what fires in `text`, by detector; those in `skip` are not looked for.

        Raises `TooManyCandidates` when a rule has more than `max_candidates` matches to judge.
        """
        found: Counter[str] = Counter()
        for index in fired(self._gates, text):
            rule = self._rules[index]
            if rule.detector in skip or (distinct_only and not rule.distinct):
                continue
            count = self._count(index, text, max_candidates)
            if count:
                found[rule.detector] += count
        return found

    def _count(self, index: int, text: bytes, max_candidates: int) -> int:
        rule = self._rules[index]
        starts: set[int] = set()
        judged = 0
        for pattern in self._patterns[index]:
            position = 0
            while (match := pattern.search(text, position)) is not None:
                start, end = match.span(1 if pattern.groups else 0)
                if rule.accept(text, start, end):
                    starts.add(start)
                    position = end
                else:
                    position = match.start() + 1 if rule.look_inside else max(end, position + 1)
                judged += 1
                if len(starts) >= MAX_COUNT:
                    return MAX_COUNT
                if judged > max_candidates:
                    raise TooManyCandidates(rule.detector)
        return len(starts)
