"""Workers that may see a question only after `redact`: when to go to one, and how.

    local q EXTRACT      somebody cleared for the question states the problem without its people
    redact 0 -           the appliance takes out whatever a detector knows
    remote 1 SOLVE       the abler worker solves it, told nothing but that
    local q,2 PUT-BACK   somebody cleared gives the answer in the question's own terms

The detour is for questions that hold a problem (code, mathematics), which stays one without its
people; of others little is left once they are taken out. It is worth it when the veiled worker is
so much abler that `GAIN` is left after what its price costs. If nobody is cleared for the question,
the redacted question itself is asked. In all other cases whoever plans is shown the cleared
candidates alone (`planned`), as if there were no others: no engine so far was trained to choose a
redaction.

Left out: further rounds, where an answer is there already. That the plan is permitted is checked
here by the mask, so that no plan is made that the caller would have to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from conductor.core import Candidate, PlanRequest
from conductor.errors import PlanError
from conductor.plan.language import Access, Builtin, Plan, Step
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate
from conductor.planner.domain import domain
from conductor.planner.engine import Insight, Planned
from conductor.planner.ranking import price_usd, roomy, skill

GAIN = 0.25
"""How much abler the veiled worker must be, as a chance of a right answer. Not yet measured. It is
a guess on the safe side: the problem loses detail on its way out, and two steps of the weaker
worker, each of which can go wrong, come before and after."""

_PROBLEMS = ("code", "math")
"""Domains whose questions hold a problem. Asked to state what problem is in "write one polite
sentence that asks to pay to this account", a small model refused, and what came of it was none."""
_QUESTION = Access(question=True)
_REQUESTS = 1000
"""What `PlanRequest.cost_weight` counts cost by."""

Ask = Callable[[PlanRequest], Planned]


@dataclass(frozen=True)
class _Option:
    """A candidate with what the choice compares; cost in the units of skill."""

    ordinal: int
    candidate: Candidate
    skill: float
    cost: float

    @property
    def able(self) -> float:
        """Skill over all that its card tells: reading and writing with care is nobody's domain."""
        skills = self.candidate.card.skill.values()
        return sum(skills) / len(skills) if skills else 0.0

    @property
    def worth(self) -> float:
        return self.skill - self.cost


def planned(request: PlanRequest, engine: str, ask: Ask) -> Planned:
    """The plan by way of a redaction where that is better, else what `ask` plans with those that
    may see the question. Raises what `ask` raises, and `PlanError` when nobody can be asked."""
    if not any(candidate.veiled for candidate in request.candidates):
        return ask(request)
    found = by_redaction(request)
    if found is not None:
        return replace(found, engine=engine)
    return _restored(ask(_cleared(request)), request)


def by_redaction(request: PlanRequest) -> Planned | None:
    """The plan over a veiled worker, if there is one that is permitted and worth it."""
    pool = PlanPool.of(request)
    if Builtin.REDACT not in pool.builtins or request.heard:
        return None
    options = _options(request)
    cleared = [one for one in options if not one.candidate.veiled]
    abler = [one for one in options if one.candidate.veiled]
    if cleared and domain(request.question) not in _PROBLEMS:
        return None
    for best in sorted(abler, key=lambda one: (-one.worth, one.ordinal)):
        plan = _detour(best, cleared) if cleared else _direct(best)
        if plan is not None and _fits(plan, pool):
            return Planned(plan, "", _stand_ins(options, best))
    return None


def _options(request: PlanRequest) -> list[_Option]:
    topic, tokens = domain(request.question), request.prompt_tokens
    rate = request.cost_weight * _REQUESTS
    options = [
        _Option(ordinal, one, skill(one.card, topic), rate * price_usd(one, tokens))
        for ordinal, one in enumerate(request.candidates)
    ]
    return [one for one in options if roomy(one.candidate, tokens)] or options


def _detour(best: _Option, cleared: list[_Option]) -> Plan | None:
    """The four steps, if they are worth more than asking the best who is cleared."""
    home = max(cleared, key=lambda one: (one.candidate.local, one.worth, one.able, -one.ordinal))
    known = max(cleared, key=lambda one: one.worth)
    ablest = max(one.skill for one in cleared)
    left = min(best.worth - 2 * home.cost - known.worth, best.skill - ablest)
    if left < GAIN:
        return None
    return Plan(
        (
            Step(home.ordinal, _QUESTION, Template.EXTRACT.value),
            Step(Builtin.REDACT, Access(steps=(0,))),
            Step(best.ordinal, Access(steps=(1,)), Template.SOLVE.value),
            Step(home.ordinal, Access(question=True, steps=(2,)), Template.PUT_BACK.value),
        )
    )


def _direct(best: _Option) -> Plan:
    return Plan((Step(Builtin.REDACT, _QUESTION), Step(best.ordinal, Access(steps=(0,)))))


def _fits(plan: Plan, pool: PlanPool) -> bool:
    try:
        validate(plan, pool)
    except PlanError:
        return False
    return True


def _stand_ins(options: Iterable[_Option], best: _Option) -> tuple[int, ...]:
    """Everybody else, the veiled first: for their step they are the abler ones, and for the others
    policy passes them over."""
    others = [one for one in options if one is not best]
    others.sort(key=lambda one: (not one.candidate.veiled, -one.worth, one.ordinal))
    return tuple(one.ordinal for one in others)


def _cleared(request: PlanRequest) -> PlanRequest:
    """The request with the candidates that may see all of it, and no word of the others."""
    places = {place: new for new, place in enumerate(_places(request))}
    return replace(
        request,
        candidates=tuple(request.candidates[place] for place in places),
        heard=tuple(
            replace(one, worker=None if one.worker is None else places.get(one.worker))
            for one in request.heard
        ),
        may_redact=False,
        flow=None,
    )


def _places(request: PlanRequest) -> list[int]:
    return [place for place, one in enumerate(request.candidates) if not one.veiled]


def _restored(answer: Planned, request: PlanRequest) -> Planned:
    """The answer to `_cleared(request)`, in the ordinals of `request`."""
    places = _places(request)
    steps = tuple(
        step if isinstance(step.worker, Builtin) else replace(step, worker=places[step.worker])
        for step in answer.plan.steps
    )
    insight = answer.insight
    return replace(
        answer,
        plan=replace(answer.plan, steps=steps),
        alternates=tuple(places[ordinal] for ordinal in answer.alternates),
        insight=None if insight is None else _widened(insight, places, len(request.candidates)),
    )


def _widened(insight: Insight, places: list[int], count: int) -> Insight:
    """Those that the engine was not shown have no chance of being asked, and no estimate."""
    right, chosen = [0.0] * count, [0.0] * count
    for place, one, other in zip(places, insight.right, insight.chosen, strict=True):
        right[place], chosen[place] = one, other
    return replace(insight, right=tuple(right), chosen=tuple(chosen))
