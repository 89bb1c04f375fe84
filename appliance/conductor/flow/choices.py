"""What a plan tells by being chosen: bits for workers that may not see the question.

Such a worker is shown nothing above its clearance. But which of them is asked, for what and with
which template was chosen by a planner who saw the question, and all of them may belong to one
observer. What that observer can see is written down here as a code, and the length of the code
word bounds what one plan tells it. The lengths obey Kraft's inequality (for a pool, the sum of
2^-bits over all that can be seen is at most 1), so they cannot all be short: with b bits the chance
of guessing something right grows 2^b fold at most.

For every step that somebody uncleared may get, in order:

    1 bit                     whether one more such step follows
    who may be asked          each: log2 of how many are uncleared, 1 bit whether one more follows
    the instruction           1 bit whether there is one, and log2 of the number of templates
    each earlier step shown   log2 of the numbers that a step can have, its instruction as above,
                              1 bit whether one more follows; there is at least one

A plan that asks none of them is not counted: it looks as if nobody had asked anything. Left out:
when a step comes and how long its texts are; those say something of the data that is shown, which
the label of that data answers for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from conductor.plan.language import Plan, Step, View
from conductor.plan.mask import Head, head_of
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, may_stand_in


def choice_bits(plan: Plan, pool: PlanPool, alternates: Sequence[int] = ()) -> float:
    """Upper bound, in bits, of what the choice of `plan` tells workers of the pool that may not see
    the question and the planner's words. `alternates` are the stand-ins of any step.

    Infinite for a plan that shows such a worker the question, words of the planner's own, or
    nothing: the mask permits none of them.
    """
    outside = [who for who in range(pool.workers) if not _cleared(who, pool)]
    if not outside:
        return 0.0
    return sum(
        1 + asked * (1 + math.log2(len(outside))) + _told_bits(plan, step, number, pool)
        for number, step in plan.numbered()
        if (asked := sum(who in outside for who in _asked(plan, number, pool, alternates)))
    )


def _cleared(worker: int, pool: PlanPool) -> bool:
    """Whether it may see all that the planner saw."""
    return pool.mask.permits(pool.earlier, Head(worker, View(True, ()), free_text=True))


def _asked(plan: Plan, number: int, pool: PlanPool, alternates: Sequence[int]) -> Iterator[int]:
    """Who may be asked to do a step, if those before fail."""
    worker = plan.steps[number - plan.first].worker
    if isinstance(worker, int):
        others = [other for other in dict.fromkeys(alternates) if other != worker]
        yield from (w for w in (worker, *others) if may_stand_in(plan, number, w, pool))


def _told_bits(plan: Plan, step: Step, number: int, pool: PlanPool) -> float:
    """The instruction, and what is said of each step that is shown."""
    head = head_of(step, number)
    if head.free_text or head.view.question or not head.view.steps:
        return math.inf
    numbers = pool.first + pool.max_steps - 1
    shown = (_instruction_bits(plan, one) for one in head.view.steps)
    each = (math.log2(numbers) + bits + 1 for bits in shown)
    return _instruction_bits(plan, number) + sum(each)


def _instruction_bits(plan: Plan, number: int) -> float:
    """Of a step of an earlier round it is not known here: it counts as having one."""
    none = number >= plan.first and not plan.steps[number - plan.first].subtask
    return 1.0 if none else 1 + math.log2(len(Template))
