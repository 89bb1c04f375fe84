"""Baselines that are played on workers: each is one plan a game, written without a conductor.

    single              one worker, the question, no instruction
    best_of_n           the same worker n times, then a vote
    vote                n different workers, then a vote
    cheap_then_strong   the cheapest answers, the ablest answers with that in view
    solve_then_check    one answers, one checks, the first corrects
    fan_out             everybody answers, the ablest makes one answer of all
                        (Mixture-of-Agents, arXiv:2406.04692, with one layer)
    random_plan         as long as a given plan, otherwise drawn

Whoever may see the question only after a redaction takes no part in any of them. Who is cheap or
able, training games have told (`livechoice.py`). Left out: cascades that stop when an answer is
good enough, since that takes a look at it, which one plan does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from conductor.plan.language import MAX_STEPS, Access, Builtin, Plan, Step
from conductor.plan.templates import Template

if TYPE_CHECKING:
    import numpy as np

MOST_VOICES = MAX_STEPS - 1
"""Answers that one step can still make one of: a plan has no room for more."""
AGGREGATE = (
    "Several answers to the request are shown. Some may be wrong: judge each of them step by step, "
    "keep what is right, and write one complete final answer in the form that is asked for."
)


def single(worker: int) -> Plan:
    """One worker answers."""
    return Plan((_ask(worker),))


def best_of_n(worker: int, count: int) -> Plan:
    """One worker answers `count` times, at most `MOST_VOICES`; what most answers say counts."""
    return vote([worker] * count)


def vote(workers: Sequence[int]) -> Plan:
    """Each answers by itself, `MOST_VOICES` of them at most; what most answers say counts."""
    asked = tuple(_ask(worker) for worker in workers[:MOST_VOICES])
    if len(asked) == 1:
        return Plan(asked)
    return Plan((*asked, Step(Builtin.VOTE, Access(steps=tuple(range(len(asked)))))))


def cheap_then_strong(cheap: int, strong: int) -> Plan:
    """The strong one sees what the cheap one answered."""
    if cheap == strong:
        return single(strong)
    return Plan((_ask(cheap), _ask(strong, "", 0)))


def solve_then_check(solver: int, checker: int) -> Plan:
    """The solver corrects its answer by the checker's remarks."""
    return Plan(
        (_ask(solver), _ask(checker, Template.VERIFY, 0), _ask(solver, Template.CORRECT, 0, 1))
    )


def fan_out(workers: Sequence[int], aggregator: int) -> Plan:
    """Every worker answers, `MOST_VOICES` of them at most, and the aggregator answers from that."""
    asked = tuple(_ask(worker) for worker in workers[:MOST_VOICES])
    return Plan((*asked, _ask(aggregator, AGGREGATE, *range(len(asked)))))


def random_plan(workers: Sequence[int], steps: int, rng: np.random.Generator) -> Plan:
    """So many steps, one at least: workers and what they see of earlier steps are drawn. Each sees
    the question, and has no instruction of its own."""
    drawn = []
    for number in range(max(1, min(steps, MAX_STEPS))):
        seen = [step for step in range(number) if rng.random() < 0.5]
        drawn.append(_ask(int(rng.choice(workers)), "", *seen))
    return Plan(tuple(drawn))


def _ask(worker: int, words: str = "", *steps: int) -> Step:
    return Step(worker, Access(question=True, steps=tuple(steps)), words)
