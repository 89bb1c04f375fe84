"""The three lists of other conductors become the same plans, and nothing in them is ever run."""

from __future__ import annotations

import time
import warnings

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.errors import PlanError
from conductor.plan.dialect import MAX_TEXT_CHARS, parse_lists
from conductor.plan.language import Access, Plan, Step, resolve, show
from support.plans import golden, plans


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(*c[1:], id=c[0]) for c in golden("dialect")]
)
def test_golden_lists_are_read_as_written_down(text: str, expected: str) -> None:
    try:
        assert show(parse_lists(text)) == expected
    except PlanError as fault:
        assert f"error: {fault}\n" == expected


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(*c[1:], id=c[0]) for c in golden("roundlists")]
)
def test_golden_lists_of_further_rounds_are_read_by_the_number_of_their_first_step(
    text: str, expected: str
) -> None:
    first, _, text = text.partition("\n")
    try:
        assert show(parse_lists(text, int(first))) == expected
    except PlanError as fault:
        assert f"error: {fault}\n" == expected


def as_lists(plan: Plan) -> tuple[Plan, dict[str, list[object]]]:
    """The nearest plan that three lists can say, and those lists."""
    steps = []
    for number, step in plan.numbered():
        seen = resolve(step.access, number).steps
        worker = step.worker if isinstance(step.worker, int) else 0
        steps.append(Step(worker, Access(number == plan.first, seen), step.subtask))
    lists: dict[str, list[object]] = {
        "model_id": [step.worker for step in steps],
        "subtasks": [step.subtask for step in steps],
        "access_list": [list(step.access.steps) for step in steps],
    }
    return Plan(tuple(steps), plan.first), lists


spaceless = plans().filter(
    lambda plan: all(step.subtask == " ".join(step.subtask.split()) for step in plan.steps)
)


@settings(deadline=None)
@given(spaceless)
def test_json_and_python_forms_give_the_same_plan(plan: Plan) -> None:
    expected, lists = as_lists(plan)
    python = "\n".join(f"{name} = {value!r}" for name, value in lists.items())
    assert parse_lists(f"Some thought.\n```\n{python}\n```\n", plan.first) == expected
    assert parse_lists(orjson.dumps(lists).decode(), plan.first) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([*"[]\"'\\,:= \n0a#({", "model_id=["]), max_size=60))
def test_junk_is_refused_and_nothing_else_is_raised(pieces: list[str]) -> None:
    noise = "".join(pieces)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            parse_lists(f"model_id = [{noise}\nsubtasks = ['{noise}']\naccess_list = [{noise}]")
        except PlanError:
            return


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("model_id = " + "[" * 30_000, id="deep nesting"),
        pytest.param("model_id=['" * 5_000, id="quotes that never close"),
        pytest.param("model_id=[" * 6_000, id="lists that never close"),
        pytest.param("model_id = [" + "-" * 60_000 + "1]", id="a tower of minus signs"),
        pytest.param("model_id = [" + "9" * 60_000 + "]", id="a number longer than any"),
        pytest.param('model_id = ["' + "\\" * 60_000 + '"]', id="backslashes"),
        pytest.param("a" * (MAX_TEXT_CHARS + 1), id="too long"),
    ],
)
def test_hostile_texts_are_refused_in_time(text: str) -> None:
    start_s = time.thread_time()
    with pytest.raises(PlanError):
        parse_lists(text)
    assert time.thread_time() - start_s < 10


def test_the_text_after_a_plan_is_ignored() -> None:
    text = "model_id = [2]\nsubtasks = ['a']\naccess_list = [[]]\nmodel_id = [5] would cost more."
    assert show(parse_lists(text)) == "2 q a\n"


def test_every_break_in_a_subtask_becomes_one_space() -> None:
    text = '{"model_id":[0],"subtasks":["\\n a\\r\\n\\tb\\u2028c \\u0000d \\n"],"access_list":[[]]}'
    assert show(parse_lists(text)) == "0 q a b c d\n"
