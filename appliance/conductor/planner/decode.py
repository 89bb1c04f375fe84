"""From the pocket conductor's choices to a plan, the same in training and in the daemon.

A round's plan is one line for every worker asked, each shown the question alone; they run side by
side. To end with an answer of an earlier round the plan is a vote over that one step, or empty when
that answer stands anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from conductor.plan.language import Access, Builtin, Plan, Step

_QUESTION = Access(question=True)


def asking(first: int, workers: Sequence[int]) -> Plan:
    """The plan that asks these ordinals side by side, its steps numbered from `first`."""
    return _asking(first, tuple(workers))


@lru_cache(maxsize=65536)
def _asking(first: int, workers: tuple[int, ...]) -> Plan:
    return Plan(tuple(Step(worker, _QUESTION) for worker in workers), first)


@lru_cache(maxsize=1024)
def keeping(first: int, step: int, stands: int | None) -> Plan:
    """The plan that ends with the answer of an earlier `step`; `stands` is the step whose answer
    would be given anyway."""
    if step == stands:
        return Plan((), first)
    return Plan((Step(Builtin.VOTE, Access(steps=(step,))),), first)
