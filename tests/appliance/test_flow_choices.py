"""How much a plan can tell by being chosen is bounded, and the bound cannot be cheated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from conductor.core import Flow
from conductor.errors import PlanError
from conductor.flow.choices import choice_bits
from conductor.plan.language import Access, Builtin, Plan, Step, View, parse
from conductor.plan.mask import Head, LabelMask
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate

SOLVE = Template.SOLVE.value
TEMPLATES = math.log2(len(Template))


def pool(cleared: int, outside: int, max_steps: int = 5, first: int = 0) -> PlanPool:
    """The last `outside` workers may see only what was redacted."""
    workers = cleared + outside
    flow = Flow(
        question=1,
        control=1,
        heard=(1,) * first,
        joins=((0, 1), (1, 1)),
        redacted=(0, 0),
        sees=(frozenset(range(workers)), frozenset(range(cleared))),
    )
    earlier = tuple(Head(0, View(True, ()), False) for _ in range(first))
    return PlanPool(workers, max_steps=max_steps, earlier=earlier, mask=LabelMask(flow))


DESIGN = parse(f"0 q Think.\nredact 0 -\n2 1 {SOLVE}\n0 q,2 Answer.\n")


def test_who_may_see_the_question_is_told_nothing_by_a_plan() -> None:
    assert choice_bits(parse("0 q -\n1 q,0 Sum it up.\n"), pool(2, 0)) == 0.0
    assert choice_bits(parse("0 q Anything.\n"), pool(1, 3)) == 0.0
    assert choice_bits(parse("redact q -\n0 0 Anything.\n"), pool(1, 3)) == 0.0


def test_the_plan_of_the_design_tells_some_bits_that_can_be_counted_by_hand() -> None:
    one_step = 1 + (math.log2(2) + 1) + (1 + TEMPLATES) + (math.log2(4) + 1 + 1)
    assert choice_bits(DESIGN, pool(2, 2)) == pytest.approx(one_step)
    assert 11 < one_step < 12


def test_stand_ins_may_be_told_as_well() -> None:
    here = pool(2, 3)
    alone = choice_bits(DESIGN, here)
    assert choice_bits(DESIGN, here, [1, 0]) == alone  # cleared for the question anyway
    assert choice_bits(DESIGN, here, [1, 3, 2, 0]) == pytest.approx(alone + 1 + math.log2(3))
    assert choice_bits(parse("redact q -\n0 0 -\n"), here, [2]) > 0.0


def test_a_mask_that_lets_words_out_is_no_bound_at_all() -> None:
    class Leaky:
        def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
            return head.worker == 0 or not head.view.question

    loose = replace(pool(1, 1), mask=Leaky())
    assert choice_bits(parse("1 - The secret is 42.\n"), loose) == math.inf


def all_plans(here: PlanPool) -> Iterator[Plan]:
    """Every plan of the pool, as far as those outside can tell: of the others' lines only what
    leads to another view outside."""
    waiting: list[tuple[Step, ...]] = [()]
    while waiting:
        steps = waiting.pop()
        for step in lines(len(steps), here.workers):
            plan = Plan((*steps, step))
            try:
                validate(plan, here)
            except PlanError as fault:
                if "is no answer" not in str(fault):
                    continue
            else:
                yield plan
            if len(plan.steps) < here.max_steps:
                waiting.append(plan.steps)


def lines(number: int, workers: int) -> Iterator[Step]:
    yield Step(0, Access(question=True))
    yield Step(Builtin.REDACT, Access(question=True))
    shown = [(0,), (1,), (0, 1)] if number == 2 else [(0,)] * number
    for steps in shown:
        for worker in range(1, workers):
            for text in ("", *Template):
                yield Step(worker, Access(steps=steps), str(text))


def seen(plan: Plan) -> tuple[object, ...]:
    """All that those outside see of a plan."""
    return tuple(
        (step.worker, step.subtask, tuple((i, plan.steps[i].subtask) for i in step.access.steps))
        for step in plan.steps
        if not isinstance(step.worker, Builtin) and step.worker > 0
    )


def test_the_lengths_are_those_of_a_code() -> None:
    """Kraft: they cannot all be short, so they do bound what is told."""
    here = pool(1, 2, max_steps=3)
    bits: dict[tuple[object, ...], float] = {}
    for plan in all_plans(here):
        told = choice_bits(plan, here)
        assert bits.setdefault(seen(plan), told) == told
    silent = bits.pop(())
    assert silent == 0.0
    assert len(bits) > 1000
    assert 0.0 < sum(2**-told for told in bits.values()) <= 1.0
