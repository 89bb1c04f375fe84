"""The mask that a planner is told of says of every plan what policy would say."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Obligation
from conductor.flow.classes import flow_of
from conductor.flow.standing import Standing
from conductor.labels import Label
from conductor.plan.language import Builtin, Plan, View
from conductor.plan.mask import MAX_CLASSES, Head, LabelMask, head_of
from support.plans import plans

NAMES = ("a", "b", "c")
REDACT = Obligation("redact", "r1")
CANDIDATES = 4
labels = st.builds(Label, st.integers(0, 2), st.frozensets(st.sampled_from(NAMES)))


@st.composite
def worlds(draw: st.DrawFn):
    """Any label of the question and of what was heard, any redaction, and any verdicts at all."""
    removed, level = draw(st.frozensets(st.sampled_from(NAMES))), draw(st.integers(0, 2))
    question = Standing.of(draw(labels))
    heard = draw(st.lists(labels.map(Standing.of), max_size=3))
    control = reduce(Standing.join, heard, question)

    def redacted(one: Standing) -> Standing:
        lower = Label(min(one.label.level, level), one.label.compartments - removed)
        return one.lowered(lower, REDACT)

    seed = draw(st.integers(0, 2**32))

    def sees(who: int, one: Standing) -> bool:
        told = (one.label.level, sorted(one.label.compartments), sorted(one.origin.compartments))
        return hash((seed, who, str(told), REDACT in one.discharged)) % 3 > 0

    return question, control, heard, redacted, sees


def shown(world, plan: Plan, number: int) -> Standing:
    """What a step is shown, by the definition."""
    question, control, heard, redacted, _ = world

    def answer(one: int) -> Standing:
        if one < len(heard):
            return heard[one]
        made = shown(world, plan, one)
        step = plan.steps[one - plan.first]
        return redacted(made) if step.worker is Builtin.REDACT else made

    head = head_of(plan.steps[number - plan.first], number)
    parts = [answer(one) for one in head.view.steps] + [question] * head.view.question
    if head.free_text or not parts:
        parts.append(control)
    return reduce(Standing.join, parts)


@settings(max_examples=400, deadline=None)
@given(worlds(), plans(workers=CANDIDATES))
def test_the_mask_permits_exactly_what_policy_would(world, plan: Plan) -> None:
    question, control, heard, redacted, sees = world
    flow = flow_of(question, control, heard, redacted=redacted, sees=sees, candidates=CANDIDATES)
    moved = rebased(plan, len(heard))
    before = tuple(Head(0, View(True, ()), True) for _ in heard)
    for number, step in moved.numbered():
        head = head_of(step, number)
        if isinstance(step.worker, int):
            expected = sees(step.worker, shown(world, moved, number))
            assert LabelMask(flow).permits(before, head) is expected
        before = (*before, head)


def rebased(plan: Plan, first: int) -> Plan:
    """The plan numbered from `first`, shown what it can then be shown."""
    steps = []
    for number, (_, step) in enumerate(plan.numbered(), first):
        known = tuple(one for one in step.access.steps if one < number)
        access = type(step.access)(step.access.question, known, step.access.everything)
        steps.append(type(step)(step.worker, access, step.subtask))
    return Plan(tuple(steps), first)


def test_policy_is_asked_once_for_each_candidate_and_class() -> None:
    asked: list[tuple[int, Label]] = []

    def sees(who: int, label: Label) -> bool:
        asked.append((who, label))
        return True

    pii = Label(1, frozenset({"pii"}))
    flow = flow_of(pii, pii, [], redacted=lambda one: Label(1), sees=sees, candidates=3)
    assert sorted(set(asked), key=str) == sorted(asked, key=str)
    assert len(asked) == 6 and len(flow.sees) == 2
    assert flow.joins == ((0, 0), (0, 1)) and flow.redacted == (1, 1)


def test_more_classes_than_there_is_room_for_are_seen_by_nobody() -> None:
    heard = [Label(0, frozenset({str(one)})) for one in range(8)]
    everything = Label(0, frozenset(map(str, range(8))))
    flow = flow_of(
        Label(0), everything, heard, redacted=lambda one: one, sees=lambda *_: True, candidates=2
    )
    assert len(flow.sees) == MAX_CLASSES
    assert flow.sees[-1] == frozenset() and set(flow.sees[:-1]) == {frozenset({0, 1})}
    assert flow.redacted[-1] == len(flow.sees) - 1
    for row in flow.joins:
        assert row[-1] == len(flow.sees) - 1
    assert len({*flow.heard, flow.question, flow.control}) == 10


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        (Obligation("redact", "r"), True),
        (Obligation("pseudonymise", "p"), True),
        (Obligation("approve", "a"), False),
        (Obligation("no_tools"), False),
        (Obligation("zero_retention"), False),
    ],
)
def test_what_was_done_to_a_text_holds_for_an_answer_to_it_only_where_it_can(
    one: Obligation, kept: bool
) -> None:
    standing = Standing.of(Label(1)).lowered(Label(1), one)
    assert (one in standing.answered().discharged) is kept


def test_a_join_was_redacted_only_if_both_were() -> None:
    raw = Standing.of(Label(1, frozenset({"pii"})))
    clean = raw.lowered(Label(1), REDACT)
    assert clean.join(clean) == clean
    assert clean.join(raw) == raw
    assert clean.join(Standing.of(Label(0))).discharged == frozenset()
    assert clean.raised(Label(2, frozenset({"health"}))) == Standing(
        Label(2, frozenset({"health"})),
        Label(2, frozenset({"pii", "health"})),
    )
