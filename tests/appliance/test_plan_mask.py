"""The mask of a request's labels, spelled out; `test_plan_grammar.py` holds the oracle to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor.core import Flow, PlanRequest
from conductor.errors import PlanError
from conductor.plan.language import Builtin, parse
from conductor.plan.templates import MAX_TEMPLATES, Template, is_template
from conductor.plan.validate import PlanPool, may_stand_in, validate
from support.plans import candidate, heard, request

OPEN, SECRET = 0, 1
FLOW = Flow(
    question=SECRET,
    control=SECRET,
    heard=(),
    joins=((OPEN, SECRET), (SECRET, SECRET)),
    redacted=(OPEN, OPEN),
    sees=(frozenset({0, 1}), frozenset({0})),
)
"""Worker 0 may see all, worker 1 only what was redacted."""
VEILED = replace(candidate(), veiled=True)
ASKED = replace(request(candidate(), VEILED), may_redact=True, flow=FLOW)
SOLVE = Template.SOLVE.value


def fault(text: str, asked: PlanRequest = ASKED) -> str:
    """What is wrong with a plan, empty if nothing."""
    pool = PlanPool.of(asked)
    try:
        validate(parse(text, pool.first), pool)
    except PlanError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0 q Anything at all.\n", id="cleared for the question, cleared for words"),
        pytest.param("redact q -\n1 0 -\n", id="the redacted question"),
        pytest.param(f"redact q -\n1 0 {SOLVE}\n", id="with a template"),
        pytest.param(
            f"0 q Sum it up.\nredact 0 -\n1 1 {SOLVE}\n0 q,2 Answer.\n", id="the plan of the design"
        ),
        pytest.param("redact q -\n1 0 -\n1 1 -\n", id="an answer made from nothing else"),
        pytest.param("redact q -\nredact 0 -\nvote 0,1 -\n1 2 -\n", id="a vote over redacted ones"),
        pytest.param("0 - Hello.\n", id="the cleared one may be shown nothing"),
    ],
)
def test_what_labels_permit(text: str) -> None:
    assert fault(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1 q -\n", id="the question"),
        pytest.param("redact q -\n1 * -\n", id="everything"),
        pytest.param("redact q -\n1 q,0 -\n", id="the question beside what was redacted"),
        pytest.param("redact q -\n1 0 Solve this.\n", id="the planner's words"),
        pytest.param(f"redact q -\n1 0 {SOLVE} Now.\n", id="a template and words"),
        pytest.param("0 q -\n1 0 -\n", id="an answer that was made from the question"),
        pytest.param("0 q -\nredact q -\n1 0,1 -\n", id="two, of which one was"),
        pytest.param("redact q -\n0 0 Name the person.\n1 1 -\n", id="words, one step further"),
        pytest.param("0 q -\nredact q -\nvote 0,1 -\n1 2 -\n", id="a vote that may elect it"),
        pytest.param("1 - -\n", id="nothing: that it is called would tell something"),
    ],
)
def test_what_labels_forbid(text: str) -> None:
    assert "this worker may not be shown that" in fault(text)


def test_answers_of_earlier_rounds_have_the_labels_that_they_came_with() -> None:
    told = heard("raw", "clean", workers=(0, None))
    asked = replace(ASKED, heard=told, flow=replace(FLOW, heard=(SECRET, OPEN)))
    assert fault("1 1 -\n", asked) == ""
    assert fault("redact 0 -\n1 2 -\n", asked) == ""
    assert "may not be shown" in fault("1 0 -\n", asked)
    assert "may not be shown" in fault("1 0,1 -\n", asked)


def test_redaction_is_offered_only_where_it_can_be_done() -> None:
    assert "cannot be used" in fault("redact q -\n0 0 -\n", replace(ASKED, may_redact=False))
    assert PlanPool.of(replace(ASKED, one_step=True)).builtins == frozenset()
    assert Builtin.REDACT in PlanPool.of(ASKED).builtins


def test_a_veiled_candidate_without_labels_is_refused_rather_than_shown_everything() -> None:
    with pytest.raises(PlanError, match="veiled"):
        PlanPool.of(replace(ASKED, flow=None))
    with pytest.raises(PlanError, match="one label"):
        PlanPool.of(replace(ASKED, heard=heard("4")))


def test_a_stand_in_may_see_what_the_step_is_shown_or_is_none() -> None:
    pool = PlanPool.of(ASKED)
    plan = parse(f"0 q -\nredact 0 -\n1 1 {SOLVE}\n0 q,2 -\n")
    able = [[may_stand_in(plan, step, who, pool) for who in (0, 1)] for step in (0, 2, 3)]
    assert able == [[True, False], [True, True], [True, False]]


def test_templates_are_few_and_can_be_written_as_instructions() -> None:
    assert len(Template) <= MAX_TEMPLATES
    for template in Template:
        assert is_template(template.value)
        assert not is_template(template.value[:-1]) and not is_template(template.value + " ")
        assert parse(f"0 q {template}\n").steps[0].subtask == template
    assert not is_template("")
