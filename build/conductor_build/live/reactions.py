"""How a simulated worker's chance of a right answer follows from what it is told and shown. Pure.

The amounts are guesses of ours at what is known of language models: a fitting instruction helps,
one about something else hurts, a right answer in view helps much, a wrong one misleads, and whoever
is asked to check is misled less. They decide what can be learned on a simulated pool, and say
nothing of real workers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from conductor.plan.templates import Template, is_template
from conductor_build.live.known import MIDDLE


class Fit(Enum):
    """What an instruction is to a question."""

    NONE = auto()  # there is none
    PLAIN = auto()  # it fits any question
    TEMPLATE = auto()
    FITTING = auto()
    OFF_TOPIC = auto()


@dataclass(frozen=True)
class Reactions:
    """What is added to the log odds of a right answer."""

    harder: float = -0.5
    """For each step of difficulty above the middle one; below it, the other way round."""
    template: float = 0.3
    fitting: float = 0.8
    off_topic: float = -1.2
    shown_right: float = 1.6
    shown_wrong: float = -1.0
    checking_right: float = 2.2
    """In place of `shown_right`, for who is asked to check."""
    checking_wrong: float = 0.3

    def chance(
        self, skill: float, difficulty: int, fit: Fit, *, right: int, wrong: int, checks: bool
    ) -> float:
        """Of a right answer, by a worker who is right with `skill` on questions of middle
        difficulty and is shown so many right and wrong answers."""
        odds = _logit(skill) + self.harder * (difficulty - MIDDLE)
        odds += {
            Fit.TEMPLATE: self.template,
            Fit.FITTING: self.fitting,
            Fit.OFF_TOPIC: self.off_topic,
        }.get(fit, 0.0)
        if right:
            odds += self.checking_right if checks else self.shown_right
        if wrong:
            odds += self.checking_wrong if checks else self.shown_wrong
        return 1 / (1 + math.exp(-odds))


CUES: Mapping[str, frozenset[str]] = {
    domain: frozenset(words.split())
    for domain, words in {
        "arithmetic": "add addition arithmetic calculate calculation compute minus numbers plus "
        "subtract subtraction sum total",
        "dates": "calendar date dates day days leap month months year years",
        "units": "conversion convert converting factor measure multiply unit units",
        "sorting": "alphabet alphabetical alphabetically order ordered sort sorted sorting",
        "code": "code execute loop output print prints program python run trace variable",
        "words": "digit digits english letters spell spelled spelling words",
        "logic": "age ages chain compare deduce logic older oldest order people person younger "
        "youngest",
    }.items()
}
"""Words by which an instruction shows what kind of question it is about."""
_CHECKING = re.compile(
    r"\b(?:check|compare|confirm|correct|error|examine|judge|mistake|review|right|verif|wrong)",
    re.I,
)
_CHECKING_TEMPLATES = (Template.VERIFY, Template.CORRECT, Template.COMBINE)
_WORD = re.compile(r"[a-z]+")
_LONG = 5
"""Letters from which a word of a question says what it is about, where its domain has no cues."""
_SAYS_NOTHING = frozenset({"answer", "alone", "number", "question", "their", "these", "which"})


def fit_of(instruction: str, domain: str, question: str) -> Fit:
    """What the instruction is to a question of that domain."""
    if not instruction:
        return Fit.NONE
    if is_template(instruction):
        return Fit.TEMPLATE
    said = frozenset(_WORD.findall(instruction.lower()))
    if said & (CUES[domain] if domain in CUES else _content(question)):
        return Fit.FITTING
    elsewhere = frozenset().union(*(words for name, words in CUES.items() if name != domain))
    return Fit.OFF_TOPIC if said & elsewhere else Fit.PLAIN


def _content(question: str) -> frozenset[str]:
    words = (word for word in _WORD.findall(question.lower()) if len(word) >= _LONG)
    return frozenset(words) - _SAYS_NOTHING


def checks(instruction: str) -> bool:
    """Whether it asks to check what is shown."""
    if is_template(instruction):
        return instruction in _CHECKING_TEMPLATES
    return _CHECKING.search(instruction) is not None


def restates(instruction: str) -> bool:
    """Whether it asks to hand the problem on, not to solve it."""
    return instruction == Template.EXTRACT


def _logit(chance: float) -> float:
    bounded = min(0.999, max(0.001, chance))
    return math.log(bounded / (1 - bounded))
