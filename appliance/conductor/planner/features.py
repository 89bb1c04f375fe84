"""From a plan request to the numbers that the pocket conductor's network takes.

Training computes a prompt by the same `prompt`; everything else stands in the request: cards,
prices, what was heard. Workers are rows, in the request's order; names are nowhere.

Shapes: K candidates, D domains, F numbers of a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conductor.core import Candidate, PlanRequest
from conductor.plan import agreement
from conductor.planner.facts import Domain, Facts
from conductor.planner.lexical import lexical
from conductor.planner.ranking import EXPECTED_ANSWER_TOKENS

FEATURES = 1
"""Version of all of this; a bundle names the one that it was trained on."""

_FAR = 1e300

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Embed = Callable[[str], Floats]


class State(NamedTuple):
    """Where one request stands, in the middle of being planned: the network's inputs, by name."""

    prompt: Floats
    """[F]"""
    skill: Floats
    """[K, D] chance of a right answer, by card."""
    cost: Floats
    """[K, D] expected cost of an answer, USD per 1,000 requests."""
    present: Flags
    """[K] whom one may ask."""
    asked: Flags
    """[K] answered, or failed, in an earlier round."""
    answer: Numbers
    """[K] equal where answers agree, negative where there is none to compare."""
    pending: Flags
    """[K] asked in this round."""
    weight: np.float32
    """Lambda."""
    rounds_left: np.int64
    calls_left: np.int64
    steps_left: np.int64


@dataclass(frozen=True)
class Said:
    """What the answers of earlier rounds come to."""

    asked: Flags
    """[K]"""
    answer: Numbers
    """[K]"""
    steps: Mapping[int, int]
    """The first step in which a candidate gave an answer that is not empty, by ordinal."""
    agreeing: Mapping[int, tuple[int, ...]]
    """The steps whose answers agree with that of a step, itself included, rising."""
    stands: int | None
    """The step whose answer is given if nothing else is done; None: there is no answer."""


def prompt(question: str, embed: Embed) -> Floats:
    """[F]: the sentence vector, then the lexical features."""
    return np.concatenate([embed(question), lexical(question)]).astype(np.float32)


def skills(candidates: tuple[Candidate, ...], facts: Facts) -> Floats:
    """[K, D] from cards: the domain's own figure, else its family's, else `general`, else what
    training's workers came to."""
    rows = [[_skill(one.card.skill, domain) for domain in facts.domains] for one in candidates]
    return np.array(rows, np.float32).reshape(len(candidates), len(facts.domains))


def _skill(card: Mapping[str, float], domain: Domain) -> float:
    for name in (domain.name, domain.family, "general"):
        if name in card:
            return card[name]
    return domain.level


def costs(candidates: tuple[Candidate, ...], prompt_tokens: int, facts: Facts) -> Floats:
    """[K, D] what 1,000 such answers are expected to cost in USD, the prompt included."""
    tokens = np.array([domain.output_tokens for domain in facts.domains])
    wordy = np.array([one.card.verbosity for one in candidates])
    price = np.array([one.price.output_usd_per_mtok for one in candidates])
    entry = np.array([one.price.input_usd_per_mtok for one in candidates]) * float(prompt_tokens)
    return ((np.outer(wordy * price, tokens) + entry[:, None]) / 1000).astype(np.float32)


def roomy(request: PlanRequest) -> Flags:
    """[K] whose context window holds the conversation and an answer; all, where nobody's does."""
    needed = request.prompt_tokens + EXPECTED_ANSWER_TOKENS
    windows = [one.context_tokens >= needed for one in request.candidates]
    return np.array(windows if any(windows) else [True] * len(windows), np.bool_)


def hear(request: PlanRequest, similar: agreement.Similar) -> Said:
    """Compare the answers of earlier rounds. Answers of workers that are no candidates any more
    count in who agrees with whom, and may stand."""
    heard = request.heard
    numbers = agreement.clusters([one.answer for one in heard], similar)
    asked = np.zeros(len(request.candidates), np.bool_)
    answer = np.full(len(request.candidates), agreement.NONE, np.int64)
    steps: dict[int, int] = {}
    for one, number in zip(heard, numbers, strict=True):
        if one.worker is None:
            continue
        asked[one.worker] = True
        if one.answer and one.worker not in steps:
            steps[one.worker], answer[one.worker] = one.step, number
    given = [one.step for one in heard if one.answer]
    agreeing = {
        step: tuple(
            other
            for other in given
            if other == step or numbers[other] == numbers[step] != agreement.NONE
        )
        for step in given
    }
    return Said(asked, answer, steps, agreeing, max(given, default=None))


def shortlist(state: State, most: int) -> Numbers:
    """Rows, rising, of at most `most` candidates: those that were asked, then who is nearest to the
    best in some domain, by what an answer is worth less what it costs."""
    count = len(state.present)
    if count <= most:
        return np.arange(count)
    worth = state.skill.astype(np.float64) - float(state.weight) * state.cost
    worth[~state.present] = -_FAR
    regret = np.where(state.present, (worth.max(0) - worth).min(1), _FAR)
    regret[state.asked] = -_FAR
    return np.sort(np.argsort(regret, kind="stable")[:most])


def rows_of(state: State, rows: Numbers) -> State:
    """The same state of these candidates only."""
    parts = ("skill", "cost", "present", "asked", "answer", "pending")
    return state._replace(**{name: getattr(state, name)[rows] for name in parts})
