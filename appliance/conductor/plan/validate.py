"""Whether a plan fits: the pool, the limits of the request, and who may be shown what.

Pure. The same `PlanPool` also drives `grammar.py`, which knows these rules in another form; a test
holds the two together. Left out: prices and budgets (`run/budget.py`), and policy itself, which
`run/attempts.py` asks again before every attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from conductor.core import Heard, PlanRequest
from conductor.errors import PlanError
from conductor.plan.language import (
    MAX_STEPS,
    MAX_TOTAL_STEPS,
    MAX_WORKERS,
    Builtin,
    Plan,
    Step,
    View,
)
from conductor.plan.mask import Head, LabelMask, Mask, Unmasked, head_of

__all__ = ["Head", "LabelMask", "Mask", "PlanPool", "Unmasked", "may_stand_in", "validate"]


@dataclass(frozen=True)
class PlanPool:
    """What one round's plan may be made of. Raises `PlanError` for limits beyond the language's
    own."""

    workers: int
    builtins: frozenset[Builtin] = frozenset(Builtin)
    max_steps: int = MAX_STEPS
    """Of this plan. 0 leaves only the empty one, where there is an answer to keep."""
    max_calls: int = MAX_STEPS
    """How many steps may call a worker of the pool."""
    may_stop: bool = False
    """Whether an answer stands that the empty plan can keep."""
    earlier: tuple[Head, ...] = ()
    """The steps of the rounds before: a plan's numbers go on where they end."""
    mask: Mask = field(default_factory=Unmasked)

    def __post_init__(self) -> None:
        if not 0 <= self.workers <= MAX_WORKERS:
            raise PlanError(f"a pool has at most {MAX_WORKERS} workers")
        if not (0 if self.may_stop else 1) <= self.max_steps <= MAX_STEPS:
            raise PlanError(f"plans have 1 to {MAX_STEPS} steps, or none where one may stop")
        if self.first + self.max_steps > MAX_TOTAL_STEPS:
            raise PlanError(f"all rounds together have at most {MAX_TOTAL_STEPS} steps")

    @property
    def first(self) -> int:
        """The number of the plan's first step."""
        return len(self.earlier)

    @classmethod
    def of(cls, request: PlanRequest) -> PlanPool:
        """The pool of a request's next round. More steps than the language knows are not offered.

        Raises `PlanError` when no plan at all is possible, what was heard is misnumbered, or a
        candidate is veiled and nothing says what it may see.
        """
        earlier = _heads(request.heard)
        most = 1 if request.one_step else min(request.max_steps, MAX_STEPS)
        return cls(
            workers=len(request.candidates),
            builtins=_builtins(request),
            max_steps=min(most, MAX_TOTAL_STEPS - len(earlier)),
            max_calls=min(request.calls_left, MAX_STEPS),
            may_stop=any(heard.answer for heard in request.heard),
            earlier=earlier,
            mask=_mask(request),
        )


def _builtins(request: PlanRequest) -> frozenset[Builtin]:
    if request.one_step:
        return frozenset()
    return frozenset(Builtin) if request.may_redact else frozenset({Builtin.VOTE})


def _mask(request: PlanRequest) -> Mask:
    if request.flow is None:
        if any(candidate.veiled for candidate in request.candidates):
            raise PlanError("nothing says what a veiled candidate may be shown")
        return Unmasked()
    if len(request.flow.heard) != len(request.heard):
        raise PlanError("every answer that was heard has one label")
    return LabelMask(request.flow)


def _heads(heard: tuple[Heard, ...]) -> tuple[Head, ...]:
    """Steps of earlier rounds, as a mask is to take them when no more is told: each was shown
    everything before it and words of the planner. A built-in counts as a vote, which lowers
    nothing, and so does a worker that is no candidate any more."""
    if len(heard) > MAX_TOTAL_STEPS or any(h.step != place for place, h in enumerate(heard)):
        raise PlanError(
            f"what was heard must be numbered from 0 to {MAX_TOTAL_STEPS - 1}, in order"
        )
    return tuple(
        Head(Builtin.VOTE if h.worker is None else h.worker, View(True, tuple(range(h.step))), True)
        for h in heard
    )


def validate(plan: Plan, pool: PlanPool) -> None:
    """Raises `PlanError`, with the step's number, for the first thing that does not fit."""
    if plan.first != pool.first:
        raise PlanError(f"this round's steps are numbered from {pool.first}")
    if not plan.steps and not pool.may_stop:
        raise PlanError("an empty plan keeps the answer that stands, and there is none yet")
    if len(plan.steps) > pool.max_steps:
        raise PlanError(f"this round may have at most {pool.max_steps} steps")
    earlier, calls = pool.earlier, 0
    for number, step in plan.numbered():
        head = head_of(step, number)
        calls += not isinstance(step.worker, Builtin)
        fault = _fault(step, head, pool)
        if fault is None and calls > pool.max_calls:
            fault = f"this round may call at most {pool.max_calls} workers"
        if fault is None and not pool.mask.permits(earlier, head):
            fault = "this worker may not be shown that: choose another, or `redact` first"
        if fault is not None:
            raise PlanError(fault, number)
        earlier = (*earlier, head)
    if plan.steps and plan.steps[-1].worker is Builtin.REDACT:
        raise PlanError("`redact` is no answer: let a later step use it", len(earlier) - 1)


def may_stand_in(plan: Plan, number: int, ordinal: int, pool: PlanPool) -> bool:
    """Whether a worker may do the step of that number in place of the one that was planned. Pure;
    what later steps may be shown does not change, since that depends on no worker."""
    heads = tuple(head_of(step, place) for place, step in plan.numbered())
    before = (*pool.earlier, *heads[: number - plan.first])
    return pool.mask.permits(before, replace(heads[number - plan.first], worker=ordinal))


def _fault(step: Step, head: Head, pool: PlanPool) -> str | None:
    if isinstance(step.worker, Builtin):
        return _builtin_fault(step.worker, step.subtask, head.view, pool)
    if step.worker >= pool.workers:
        return f"there is no worker {step.worker}: the pool has {pool.workers}, counted from 0"
    return None


def _builtin_fault(builtin: Builtin, subtask: str, view: View, pool: PlanPool) -> str | None:
    if builtin not in pool.builtins:
        return f"`{builtin}` cannot be used in this request"
    if subtask:
        return f"`{builtin}` takes no instruction: write '-'"
    if builtin is Builtin.VOTE and not view.steps:
        return "`vote` chooses among the results of earlier steps: name at least one"
    if builtin is Builtin.REDACT and view.question + len(view.steps) != 1:
        return "`redact` works on exactly one text: the question or one step"
    return None
