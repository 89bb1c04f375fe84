"""Which answers agree: exactly where they conclude with a few words, else by likeness.

Pure. What an answer concludes with is found in `conclusion.py` and spelled in one way in
`normalform.py`; prose has no such words, and whoever can judge likeness says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from conductor.plan.conclusion import READ_CHARS, conclusion, ends
from conductor.plan.normalform import normal, plain

Similar = Callable[[str, str], bool]
"""Whether two texts say the same. Asked with the two in the order of their letters."""

NONE = -1
"""Cluster of an answer that says nothing: empty, or marks alone. It agrees with nobody."""

_STANCE = re.compile(r"\W{0,4}(yes|no|true|false)\b", re.I)


def key(answer: str) -> str:
    """The normal form of what the answer concludes with: equal keys mean agreement.

    Empty when there is nothing that can be compared exactly: prose, a program, an empty answer.
    Takes time linear in the answer; only its two ends are read (`conclusion.READ_CHARS`), so that
    an answer and what a planner is shown of it have one key.
    """
    found = conclusion(answer)
    return normal(found.text, code=found.code) if found else ""


def short(answer: str) -> bool:
    """Whether the answer can be compared exactly."""
    return bool(key(answer))


def clusters(answers: Sequence[str], similar: Similar | None = None) -> tuple[int, ...]:
    """The number of every answer's cluster, counted from 0 in order of appearance; `NONE` for an
    answer that says nothing.

    Answers with a key are together when their keys are equal. Of the others those are together
    whose texts are equal, as far as they are read (`key`), or linked by `similar`, directly or over
    further answers (single linkage): so that the clusters depend on the set of answers and not on
    their order. Two that begin with different words of yes and no are never asked about. `similar`
    is called at most once for each pair of different texts.
    """
    names = [_name(answer) for answer in answers]
    prose: dict[str, str] = {}
    for name, answer in zip(names, answers, strict=True):
        if name.startswith(_PROSE):
            prose.setdefault(name, answer)
    joined = _linked(prose, similar) if similar else {}
    numbers: dict[str, int] = {}
    return tuple(
        numbers.setdefault(joined.get(name, name), len(numbers)) if name else NONE for name in names
    )


def elect(numbers: Sequence[int]) -> int:
    """Index of the answer in the largest cluster; of equally large ones, the earliest.

    `NONE` counts for nobody. Raises `ValueError` when there are no answers.
    """
    if not numbers:
        raise ValueError("a vote needs at least one answer")
    counts = Counter(number for number in numbers if number != NONE)
    return max(range(len(numbers)), key=lambda index: (counts[numbers[index]], -index))


_EXACT, _PROSE = "=", "~"


def _name(answer: str) -> str:
    """What an answer is compared by; empty for one that says nothing."""
    if exact := key(answer):
        return _EXACT + exact
    text = plain(ends(answer, READ_CHARS))
    return _PROSE + text if text else ""


def _linked(prose: Mapping[str, str], similar: Similar) -> dict[str, str]:
    """Every name with the name that stands for its group."""
    group = {name: name for name in prose}
    for name, other in _pairs(sorted(prose)):  # so that no direction of likeness shows
        if group[name] != group[other] and _alike(prose[name], prose[other], similar):
            old, new = sorted((group[name], group[other]), reverse=True)
            group = {member: new if its == old else its for member, its in group.items()}
    return group


def _pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, name in enumerate(names):
        yield from ((name, other) for other in names[index + 1 :])


def _alike(one: str, other: str, similar: Similar) -> bool:
    stances = [
        found.group(1).lower() if found else "" for found in map(_STANCE.match, (one, other))
    ]
    return stances[0] == stances[1] and similar(one, other)
