"""Plans that speak for themselves: what somebody sensible would write who knows only the cards.

A plan is made of a shape and workers. Shapes: one worker, plain or with words of advice; two or
three and a vote; one who solves and one who checks; one who prepares and one who solves; and where
some may not see the question, the way by `redact`. Workers are drawn by their worth, skill less
lambda x price, with a chance for every one. Whatever does not fit the request is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from conductor.core import Candidate, PlanRequest
from conductor.errors import PlanError
from conductor.plan.cards import ANSWER_TOKENS
from conductor.plan.language import Access, Builtin, Plan, Step
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate

SHARPNESS = 12.0
"""How much likelier a worker is than one whose worth is less: by e for each 1 / SHARPNESS of it."""
_UNKNOWN = 0.5
_TRIES = 8

ADVICE = (
    "Solve this {} question step by step, then give the final answer alone.",
    "This is about {}: work it out, then give the answer in the form asked for.",
    "Answer carefully, in the form that the question asks for, and nothing else.",
    "Write down what is given and what is asked, solve it, and state the answer.",
)
"""`{}` is the kind of question, in the words of cards."""
_CHECK = (
    "Check the answer shown against the question step by step, and give the right final answer.",
    "Solve this {} question again, look for a mistake in the answer shown, and correct it.",
)
_PREPARE = (
    "List what is given, what is asked and the steps to take. Do not solve it.",
    "Restate the question as a plain problem with every figure in it. Do not solve it.",
)
_FINISH = (
    "Use the notes shown to solve the question, and give the final answer.",
    "Carry out the steps shown for this {} question, and give the final answer.",
)


@dataclass(frozen=True)
class Teacher:
    """Writes plans for one request, about a question of `domain`."""

    request: PlanRequest
    domain: str
    rng: np.random.Generator

    def plans(self, count: int) -> list[Plan]:
        """`count` plans that fit, not all different; at least one worker alone fits everywhere."""
        pool = PlanPool.of(self.request)
        return [self._fitting(pool) for _ in range(count)]

    def _fitting(self, pool: PlanPool) -> Plan:
        shapes, odds = zip(*_SHAPES, strict=True)
        for _ in range(_TRIES):
            shape = shapes[int(self.rng.choice(len(odds), p=np.array(odds) / sum(odds)))]
            try:
                plan = Plan(tuple(shape(self)))
                validate(plan, pool)
            except PlanError:
                continue
            return plan
        return self._last_resort(pool)

    def _last_resort(self, pool: PlanPool) -> Plan:
        for worker in np.argsort(-self.worths()).tolist():
            plan = Plan((_ask(worker),))
            try:
                validate(plan, pool)
            except PlanError:
                continue
            return plan
        raise PlanError("no worker may be shown the question: no plan can be taught")

    # -- workers --------------------------------------------------------------------------------

    def worths(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """What asking each candidate alone is expected to be worth, [K]."""
        return np.array([self._worth(one) for one in self.request.candidates])

    def _worth(self, candidate: Candidate) -> float:
        skill = candidate.card.skill
        right = skill.get(self.domain, skill.get("general", _UNKNOWN))
        written = ANSWER_TOKENS * candidate.card.verbosity
        usd_per_1k = (
            self.request.prompt_tokens * candidate.price.input_usd_per_mtok
            + written * candidate.price.output_usd_per_mtok
        ) / 1e3
        return right - self.request.cost_weight * usd_per_1k

    def worker(self, *, but: tuple[int, ...] = (), open_only: bool = True) -> int:
        """A worker by its worth. Raises `PlanError` when nobody is left."""
        places = [
            place
            for place, one in enumerate(self.request.candidates)
            if place not in but and not (open_only and one.veiled)
        ]
        if not places:
            raise PlanError("nobody is left to ask")
        worth = self.worths()[places] * SHARPNESS
        chance = np.exp(worth - worth.max())
        return places[int(self.rng.choice(len(places), p=chance / chance.sum()))]

    def words(self, texts: tuple[str, ...]) -> str:
        """One of several texts, made to fit the question."""
        return texts[int(self.rng.integers(len(texts)))].format(self.domain)


# -- shapes: the steps of a plan -------------------------------------------------------------------


def _ask(worker: int, words: str = "", *steps: int) -> Step:
    return Step(worker, Access(question=True, steps=tuple(steps)), words)


def _alone(teacher: Teacher) -> Iterator[Step]:
    yield _ask(teacher.worker())


def _advised(teacher: Teacher) -> Iterator[Step]:
    yield _ask(teacher.worker(), teacher.words(ADVICE))


def _vote(teacher: Teacher) -> Iterator[Step]:
    asked: tuple[int, ...] = ()
    for _ in range(2 + int(teacher.rng.integers(2))):
        asked = (*asked, teacher.worker(but=asked))
        yield _ask(asked[-1])
    yield Step(Builtin.VOTE, Access(steps=tuple(range(len(asked)))))


def _checked(teacher: Teacher) -> Iterator[Step]:
    first = teacher.worker()
    yield _ask(first)
    yield _ask(teacher.worker(but=(first,)), teacher.words(_CHECK), 0)


def _verified(teacher: Teacher) -> Iterator[Step]:
    """By the fixed texts, which everybody may read."""
    first = teacher.worker()
    second = teacher.worker(but=(first,))
    yield _ask(first)
    yield _ask(second, Template.VERIFY, 0)
    yield _ask(second, Template.CORRECT, 0, 1)


def _prepared(teacher: Teacher) -> Iterator[Step]:
    first = teacher.worker()
    yield _ask(first, teacher.words(_PREPARE))
    yield _ask(teacher.worker(but=(first,)), teacher.words(_FINISH), 0)


def _redacted(teacher: Teacher) -> Iterator[Step]:
    """Somebody who may see the question states it without names, and answers in its own terms."""
    inside = teacher.worker()
    yield _ask(inside, Template.EXTRACT)
    yield Step(Builtin.REDACT, Access(steps=(0,)))
    able = teacher.worker(but=(inside,), open_only=False)
    yield Step(able, Access(steps=(1,)), Template.SOLVE)
    yield _ask(inside, Template.PUT_BACK, 2)


_Shape = Callable[[Teacher], Iterator[Step]]
_SHAPES: tuple[tuple[_Shape, float], ...] = (
    (_alone, 0.4),
    (_advised, 0.2),
    (_vote, 0.08),
    (_checked, 0.12),
    (_verified, 0.04),
    (_prepared, 0.08),
    (_redacted, 0.08),
)
"""Shapes with how often each is tried. `_redacted` fits only where `redact` may be used."""
