"""Whether a plan fits: the pool, the limits of the request, and who may be shown what.

Pure. The same `PlanPool` also drives `grammar.py`, which knows these rules in another form; a test
holds the two together. Left out: prices and budgets (`run/budget.py`), and policy itself, which
`run/attempts.py` asks again before every attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

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
    resolve,
)


@dataclass(frozen=True, slots=True)
class Head:
    """All that decides where data goes in a step: the worker, its view, and whether text written
    by the planner, who saw the question, goes along."""

    worker: int | Builtin
    view: View
    free_text: bool


class Mask(Protocol):
    """Which steps may follow which: the seam for masks computed from labels."""

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        """Whether `head` may come after `earlier`, the steps of all rounds so far. Pure;
        `head.view` names places in `earlier`."""


@dataclass(frozen=True)
class Unmasked:
    """For pools that hold only workers which may see the whole request."""

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        return True


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
        """The pool of a request's next round. More steps than the language knows are not offered,
        nor is `redact`, for which no declassifier exists yet.

        Raises `PlanError` when no plan at all is possible, or what was heard is misnumbered.
        """
        earlier = _heads(request.heard)
        most = 1 if request.one_step else min(request.max_steps, MAX_STEPS)
        return cls(
            workers=len(request.candidates),
            builtins=frozenset() if request.one_step else frozenset({Builtin.VOTE}),
            max_steps=min(most, MAX_TOTAL_STEPS - len(earlier)),
            max_calls=min(request.calls_left, MAX_STEPS),
            may_stop=any(heard.answer for heard in request.heard),
            earlier=earlier,
        )


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
        head = Head(step.worker, resolve(step.access, number), bool(step.subtask))
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


def _fault(step: Step, head: Head, pool: PlanPool) -> str | None:
    if isinstance(step.worker, Builtin):
        return _builtin_fault(step.worker, head, pool)
    if step.worker >= pool.workers:
        return f"there is no worker {step.worker}: the pool has {pool.workers}, counted from 0"
    return None


def _builtin_fault(builtin: Builtin, head: Head, pool: PlanPool) -> str | None:
    if builtin not in pool.builtins:
        return f"`{builtin}` cannot be used in this request"
    if head.free_text:
        return f"`{builtin}` takes no instruction: write '-'"
    if builtin is Builtin.VOTE and not head.view.steps:
        return "`vote` chooses among the results of earlier steps: name at least one"
    if builtin is Builtin.REDACT and head.view.question + len(head.view.steps) != 1:
        return "`redact` works on exactly one text: the question or one step"
    return None
