"""Plans have one text each, and a text is read strictly or refused with the step's number."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.errors import PlanError
from conductor.plan.language import (
    MAX_SUBTASK_BYTES,
    Access,
    Builtin,
    Plan,
    Step,
    View,
    parse,
    resolve,
    show,
)
from support.plans import golden, plans


def explain(plan: Plan) -> str:
    """A reading of a plan that shares nothing with its text form."""
    lines = []
    for number, step in plan.numbered():
        view = resolve(step.access, number)
        shown = ["question"] * view.question + [f"step {n}" for n in view.steps]
        lines.append(f"{step.worker}: {', '.join(shown) or 'nothing'} | {step.subtask}".rstrip())
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(*c[1:], id=c[0]) for c in golden("language")]
)
def test_golden_texts_are_read_as_written_down(text: str, expected: str) -> None:
    try:
        plan = parse(text)
    except PlanError as fault:
        assert f"error: {fault}\n" == expected
    else:
        assert explain(plan) == expected
        assert show(plan) == text


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(*c[1:], id=c[0]) for c in golden("rounds")]
)
def test_golden_texts_of_further_rounds_are_read_by_the_number_of_their_first_step(
    text: str, expected: str
) -> None:
    first, _, text = text.partition("\n")
    try:
        plan = parse(text, int(first))
    except PlanError as fault:
        assert f"error: {fault}\n" == expected
    else:
        assert explain(plan) == expected
        assert show(plan) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0 q Solve it", id="cut before the newline"),
        pytest.param("0 q ", id="cut before the subtask"),
        pytest.param("0 q \n", id="empty subtask"),
        pytest.param("\n", id="an empty line"),
        pytest.param("0 q a \n", id="trailing space"),
        pytest.param("0 q a\r\n", id="carriage return"),
        pytest.param("0 q a\tb\n", id="tab"),
        pytest.param("0 q a\x00b\n", id="NUL"),
        pytest.param("0 q a\x7fb\n", id="DEL"),
        pytest.param("0 q a\x85b\n", id="C1 next line"),
        pytest.param("0 q a\u2028b\n", id="line separator"),
        pytest.param("0 q a\u2029b\n", id="paragraph separator"),
        pytest.param("0 q a\ud800b\n", id="half a surrogate pair"),
        pytest.param("\ufeff0 q a\n", id="byte order mark"),
        pytest.param("+1 q a\n", id="signed ordinal"),
        pytest.param("1_0 q a\n", id="ordinal with underscore"),
        pytest.param("²  q a\n", id="superscript ordinal"),
        pytest.param("9" * 5000 + " q a\n", id="an ordinal longer than Python converts"),
        pytest.param("0 q a\n0 ٠ a\n", id="Arabic step number"),
        pytest.param("0\xa0q a\n", id="no-break space between fields"),
        pytest.param("0 q " + "a" * 1001 + "\n", id="subtask a byte too long"),
        pytest.param("0 q " + "é" * 501 + "\n", id="subtask too long in bytes, not characters"),
        pytest.param("0 q -\n" * 100_000, id="a hundred thousand steps"),
        pytest.param("REDACT q -\n0 0 -\n", id="upper case builtin"),
    ],
)
def test_what_is_not_canonical_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse(text)


def test_the_error_names_the_step_and_never_quotes_it() -> None:
    with pytest.raises(PlanError) as caught:
        parse("0 q fine\n1 0 secret-4711 \n")
    assert caught.value.line == 1
    assert "secret" not in str(caught.value)
    assert str(caught.value).startswith("step 1: ")


@settings(deadline=None)
@given(plans())
def test_every_plan_survives_being_shown_and_parsed(plan: Plan) -> None:
    assert parse(show(plan), plan.first) == plan


@settings(deadline=None)
@given(st.text(st.sampled_from("019q*-,\n abé"), max_size=30), st.integers(-1, 11))
def test_a_text_that_parses_is_shown_the_same(text: str, first: int) -> None:
    try:
        plan = parse(text, first)
    except PlanError:
        return
    assert show(plan) == text


@pytest.mark.parametrize("text", ["-", " a", "a ", "a\nb", "a\rb", "\ud800", "é" * 501])
def test_a_subtask_that_cannot_be_written_cannot_be_built(text: str) -> None:
    with pytest.raises(PlanError):
        Step(0, Access(question=True), text)


def test_the_longest_subtask_is_exactly_the_bound() -> None:
    plan = Plan((Step(0, Access(question=True), "é" * (MAX_SUBTASK_BYTES // 2)),))
    assert parse(show(plan)) == plan


def test_impossible_access_lists_cannot_be_built() -> None:
    for bad in [
        {"steps": (1, 0)},
        {"steps": (0, 0)},
        {"steps": (-1,)},
        {"steps": (10,)},
        {"everything": True, "question": True},
        {"everything": True, "steps": (0,)},
    ]:
        with pytest.raises(PlanError):
            Access(**bad)


def test_a_step_cannot_be_shown_itself() -> None:
    with pytest.raises(PlanError) as caught:
        Plan((Step(0, Access(steps=(0,))),))
    assert caught.value.line == 0


def test_star_shows_the_question_and_every_earlier_step() -> None:
    assert resolve(Access(everything=True), 0) == View(True, ())
    assert resolve(Access(everything=True), 3) == View(True, (0, 1, 2))
    assert resolve(Access(steps=(1,)), 3) == View(False, (1,))
    assert resolve(Access(), 3) == View(False, ())


def test_steps_are_numbered_on_through_the_rounds() -> None:
    plan = parse("0 q,1 -\nvote 0,1,2 -\n1 * -\n", 2)
    assert [number for number, _ in plan.numbered()] == [2, 3, 4]
    assert plan.calls == 2
    assert resolve(plan.steps[-1].access, 4) == View(True, (0, 1, 2, 3))
    with pytest.raises(PlanError, match="earlier steps only") as caught:
        parse("0 q,2 -\n", 2)
    assert caught.value.line == 2


@pytest.mark.parametrize("first", [-1, 10, 11])
def test_no_step_is_numbered_below_nought_or_above_nine(first: int) -> None:
    with pytest.raises(PlanError, match="all rounds together"):
        Plan((Step(0, Access()),), first)


def test_when_all_numbers_are_used_an_answer_can_still_be_kept() -> None:
    assert parse("", 10) == Plan(first=10)
    with pytest.raises(PlanError):
        Plan(first=11)


def test_builtins_are_told_from_ordinals_by_type() -> None:
    plan = parse("0 q -\n1 q -\nvote 0,1 -\n")
    assert [type(step.worker) for step in plan.steps] == [int, int, Builtin]
