"""Whether a plan fits: the pool, the limits of the request, and who may be shown what.

Pure. The same `PlanPool` also drives `grammar.py`, which knows these rules in another form; a test
holds the two together. Left out: prices and budgets (`run/budget.py`), and policy itself, which
`run/attempts.py` asks again before every attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from conductor.core import PlanRequest
from conductor.errors import PlanError
from conductor.plan.language import MAX_STEPS, MAX_WORKERS, Builtin, Plan, Step, View, resolve


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
        """Whether `head` may come after `earlier`. Pure; `head.view` names places in `earlier`."""


@dataclass(frozen=True)
class Unmasked:
    """For pools that hold only workers which may see the whole request."""

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        return True


@dataclass(frozen=True)
class PlanPool:
    """What a plan may be made of. Raises `PlanError` for limits beyond the language's own."""

    workers: int
    builtins: frozenset[Builtin] = frozenset(Builtin)
    max_steps: int = MAX_STEPS
    may_stop: bool = False
    """Whether there is a previous answer that the empty plan can keep."""
    mask: Mask = field(default_factory=Unmasked)

    def __post_init__(self) -> None:
        if not 0 <= self.workers <= MAX_WORKERS:
            raise PlanError(f"a pool has at most {MAX_WORKERS} workers")
        if not 1 <= self.max_steps <= MAX_STEPS:
            raise PlanError(f"plans have 1 to {MAX_STEPS} steps")

    @classmethod
    def of(cls, request: PlanRequest) -> PlanPool:
        """The pool of a first round. More steps than the language knows are not offered, nor is
        `redact`, for which no declassifier exists yet."""
        return cls(
            workers=len(request.candidates),
            builtins=frozenset() if request.one_step else frozenset({Builtin.VOTE}),
            max_steps=1 if request.one_step else min(request.max_steps, MAX_STEPS),
        )


def validate(plan: Plan, pool: PlanPool) -> None:
    """Raises `PlanError`, with the step's number, for the first thing that does not fit."""
    if not plan.steps and not pool.may_stop:
        raise PlanError("an empty plan keeps the previous answer, and there is none yet")
    if len(plan.steps) > pool.max_steps:
        raise PlanError(f"this request may have at most {pool.max_steps} steps")
    earlier: tuple[Head, ...] = ()
    for index, step in enumerate(plan.steps):
        head = Head(step.worker, resolve(step.access, index), bool(step.subtask))
        fault = _fault(step, head, pool)
        if fault is None and not pool.mask.permits(earlier, head):
            fault = "this worker may not be shown that: choose another, or `redact` first"
        if fault is not None:
            raise PlanError(fault, index)
        earlier = (*earlier, head)
    if earlier and earlier[-1].worker is Builtin.REDACT:
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
    if builtin is Builtin.VOTE and len(head.view.steps) < 2:
        return "`vote` chooses among the results of at least two steps"
    if builtin is Builtin.REDACT and head.view.question + len(head.view.steps) != 1:
        return "`redact` works on exactly one text: the question or one step"
    return None
