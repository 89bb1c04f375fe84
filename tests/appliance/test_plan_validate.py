"""A plan fits its pool, or is refused with the step and what to do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor.errors import PlanError
from conductor.plan.language import Builtin, Plan, parse
from conductor.plan.validate import PlanPool, validate
from support.plans import ClearedMask, candidate, request

POOL = PlanPool(3)


@pytest.mark.parametrize(
    "text",
    [
        "0 q -\n",
        "2 - Write a riddle.\n",
        "0 q -\n1 q -\nvote 0,1 -\n",
        "0 q -\n1 q -\nvote * -\n",
        "redact q -\n1 0 -\n",
        "redact * -\n1 0 -\n",
        "redact q -\nredact 0 -\nvote 0,1 -\n",
        "0 q -\n0 q -\n",
    ],
)
def test_a_plan_that_fits_passes(text: str) -> None:
    validate(parse(text), POOL)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "no"),
        ("3 q -\n", 0, "there is no worker 3"),
        ("0 q -\n1 q -\nvote 0 -\n", 2, "at least two"),
        ("0 q -\nvote * -\n", 1, "at least two"),
        ("0 q -\n1 q -\nvote 0,1 Take the longer.\n", 2, "no instruction"),
        ("redact q,0 -\n1 0 -\n", 0, "earlier steps only"),
        ("0 q -\nredact q,0 -\n1 1 -\n", 1, "exactly one text"),
        ("0 q -\nredact * -\n1 1 -\n", 1, "exactly one text"),
        ("redact - -\n1 0 -\n", 0, "exactly one text"),
        ("redact q Only the names.\n1 0 -\n", 0, "no instruction"),
        ("0 q -\nredact 0 -\n", 1, "no answer"),
    ],
)
def test_a_plan_that_does_not_fit_says_where_and_why(text: str, line: int, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        validate(parse(text), POOL)
    assert caught.value.line == line


def test_limits_of_the_pool_hold() -> None:
    plan = parse("0 q -\n1 q -\nvote 0,1 -\n")
    for pool in [
        replace(POOL, max_steps=2),
        replace(POOL, builtins=frozenset({Builtin.REDACT})),
    ]:
        with pytest.raises(PlanError):
            validate(plan, pool)


def test_the_empty_plan_fits_only_where_an_answer_can_be_kept() -> None:
    validate(Plan(), replace(POOL, may_stop=True))
    with pytest.raises(PlanError):
        validate(Plan(), POOL)


def test_a_mask_from_labels_follows_the_data_through_the_steps() -> None:
    pool = replace(POOL, mask=ClearedMask(frozenset({0})))
    validate(parse("0 q Find the sum.\nredact 0 -\n1 1 -\n0 q,2 Finish.\n"), pool)
    for leak in [
        "1 q -\n",
        "0 q -\n1 0 -\n",
        "0 q -\n0 0 -\n1 1 -\n",
        "0 q -\n0 q -\nvote 0,1 -\n1 2 -\n",
        "redact q -\n1 * -\n",
        "redact q -\n1 0 Solve this for Jane.\n",
    ]:
        with pytest.raises(PlanError, match="may not be shown"):
            validate(parse(leak), pool)


def test_a_request_that_needs_one_worker_gets_a_pool_for_one_step() -> None:
    asked = replace(request(candidate(), candidate()), one_step=True)
    pool = PlanPool.of(asked)
    validate(parse("0 q -\n"), pool)
    for text in ["2 q -\n", "0 q -\n0 0 -\n", "vote q -\n"]:
        with pytest.raises(PlanError):
            validate(parse(text), pool)


def test_a_pool_beyond_the_language_cannot_be_built() -> None:
    for bad in [{"workers": 257}, {"workers": -1}, {"workers": 1, "max_steps": 0}]:
        with pytest.raises(PlanError):
            PlanPool(**bad)
    assert PlanPool.of(replace(request(), max_steps=9)).max_steps == 5
