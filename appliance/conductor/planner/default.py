"""The written-down engine: no learning, no state, the same answer for the same request.

The rules, in order:

0.  In a further round the answer that stands is kept, by an empty plan, if any answer was heard
    that is not empty. If none was, who gave nothing is left out while there is anybody else.
1.  If some candidates have a context window that holds the conversation and an answer, those
    without are out. No candidate at all, or no call left: `PlanError`.
2.  The question's domain is told by surface marks (`domain.py`). A worker's skill is its card's
    figure for that domain, else for `general`, else the lowest on the card, else 0.
3.  "Cheap" compares, in this order: expected price of this request, local before remote, the
    faster, the more skilled, the larger window, the lower ordinal. "Skilled" compares skill, then
    "cheap".
4.  `thrifty` and `balanced`: the cheapest worker whose skill reaches GOOD_ENOUGH answers alone; if
    none does, the most skilled.
5.  `quality`: the two most skilled answer side by side and the more skilled of them combines, when
    the round may have three steps and calls and the second is at most CLOSE behind; else the most
    skilled answers alone.
6.  Workers that may see the question only after `redact` are left out of all this, unless one of
    them is so much abler that `veiled.py` plans by way of a redaction.
7.  Stand-ins, for a step whose worker fails: everybody left after rule 1, the most skilled first. A
    lone worker is not its own stand-in.

It never asks to look at answers: its plans, not its judgement of texts, are all that it is. Only
cards are seen, never names: the ordinal decides nothing but exact ties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conductor.core import Candidate, PlanRequest, Preference
from conductor.errors import PlanError
from conductor.plan.language import Access, Plan, Step
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool
from conductor.planner import veiled
from conductor.planner.domain import domain
from conductor.planner.engine import Planned
from conductor.planner.ranking import price_usd, roomy, skill

GOOD_ENOUGH: Mapping[Preference, float] = {"thrifty": 0.5, "balanced": 0.7}
"""Least chance of a right answer at which price decides."""
CLOSE = 0.15
"""How far behind the best a second opinion may be. A much weaker one misleads who combines them."""

COMBINE = Template.COMBINE.value
_QUESTION = Access(question=True)


@dataclass(frozen=True)
class _Ranked:
    """A usable candidate with what the rules compare."""

    ordinal: int
    skill: float
    cheap: tuple[float, bool, float, float, int, int]

    @property
    def skilled(self) -> tuple[float, tuple[float, bool, float, float, int, int]]:
        return (-self.skill, self.cheap)


class DefaultEngine:
    """Rule based `PlanEngine`: always ready."""

    name = "default"

    async def ready(self) -> bool:
        return True

    async def plan(self, request: PlanRequest) -> Planned:
        """Microseconds of work, so it runs on the event loop. Raises `PlanError` by rule 1."""
        return plan_by_rules(request)


def plan_by_rules(request: PlanRequest) -> Planned:
    """The rules above as a pure function."""
    return veiled.planned(request, DefaultEngine.name, _plan)


def _plan(request: PlanRequest) -> Planned:
    pool = PlanPool.of(request)
    if pool.may_stop:
        return Planned(Plan(first=pool.first), DefaultEngine.name)
    skilled = sorted(_usable(request), key=lambda ranked: ranked.skilled)
    if not skilled or not pool.max_calls:
        raise PlanError("no candidate to plan with, or no call to one left")
    plan = _quality(pool, skilled) if request.preference == "quality" else None
    if plan is None:
        alone = Step(_single(request.preference, skilled).ordinal, _QUESTION)
        plan = Plan((alone,), pool.first)
    lone = {plan.steps[0].worker} if len(plan.steps) == 1 else set()
    stand_ins = tuple(ranked.ordinal for ranked in skilled if ranked.ordinal not in lone)
    return Planned(plan, DefaultEngine.name, stand_ins)


def _usable(request: PlanRequest) -> list[_Ranked]:
    spent = {heard.worker for heard in request.heard}
    everybody = list(enumerate(request.candidates))
    offered = [(i, c) for i, c in everybody if i not in spent] or everybody
    able = [(i, c) for i, c in offered if roomy(c, request.prompt_tokens)]
    topic = domain(request.question)
    return [_rank(i, c, topic, request.prompt_tokens) for i, c in able or offered]


def _rank(ordinal: int, candidate: Candidate, topic: str, prompt_tokens: int) -> _Ranked:
    ability = skill(candidate.card, topic)
    faster = -candidate.card.output_tokens_per_s
    cheap = (
        price_usd(candidate, prompt_tokens),
        not candidate.local,
        faster,
        -ability,
        -candidate.context_tokens,
        ordinal,
    )
    return _Ranked(ordinal, ability, cheap)


def _single(preference: Preference, skilled: list[_Ranked]) -> _Ranked:
    """Rule 4, and the end of rule 5."""
    enough = GOOD_ENOUGH.get(preference)
    good = [] if enough is None else [ranked for ranked in skilled if ranked.skill >= enough]
    return min(good, key=lambda ranked: ranked.cheap, default=skilled[0])


def _quality(pool: PlanPool, skilled: list[_Ranked]) -> Plan | None:
    """Rule 5, where it asks for three steps."""
    if min(pool.max_steps, pool.max_calls) < 3 or len(skilled) < 2:
        return None
    best, second = skilled[:2]
    if best.skill - second.skill > CLOSE:
        return None
    both = (pool.first, pool.first + 1)
    return Plan(
        (
            Step(best.ordinal, _QUESTION),
            Step(second.ordinal, _QUESTION),
            Step(best.ordinal, Access(question=True, steps=both), COMBINE),
        ),
        pool.first,
    )
