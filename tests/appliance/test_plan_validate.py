"""A plan fits its pool, or is refused with the step and what to do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor.core import Heard
from conductor.errors import PlanError
from conductor.plan.language import Builtin, Plan, View, parse
from conductor.plan.validate import Head, PlanPool, validate
from support.plans import ClearedMask, candidate, heard, request

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
        "0 q -\n1 q -\nvote 0 -\n",
        "0 q -\nvote * -\n",
    ],
)
def test_a_plan_that_fits_passes(text: str) -> None:
    validate(parse(text), POOL)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "no"),
        ("3 q -\n", 0, "there is no worker 3"),
        ("vote * -\n", 0, "at least one"),
        ("0 q -\nvote q -\n", 1, "at least one"),
        ("0 q -\nvote - -\n", 1, "at least one"),
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
        replace(POOL, max_calls=1),
        replace(POOL, earlier=(Head(0, View(True, ()), True),)),
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
    seen = (Head(0, View(True, ()), True),)
    for bad in [
        {"workers": 257},
        {"workers": -1},
        {"workers": 1, "max_steps": 0},
        {"workers": 1, "max_steps": 6},
        {"workers": 1, "max_steps": 5, "earlier": seen * 6},
        {"workers": 1, "max_steps": 0, "may_stop": True, "earlier": seen * 11},
    ]:
        with pytest.raises(PlanError):
            PlanPool(**bad)
    assert PlanPool.of(replace(request(), max_steps=9)).max_steps == 5


# -- further rounds ---------------------------------------------------------------------------

ASKED = replace(
    request(candidate(), candidate()), heard=heard("4", "5", ""), rounds_left=1, calls_left=2
)
FURTHER = PlanPool.of(ASKED)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="keep what stands"),
        pytest.param("vote 1 -\n", id="accept one"),
        pytest.param("vote 0,1 -\n", id="accept what most say"),
        pytest.param("vote * -\n", id="all of them"),
        pytest.param("1 q,0,1 Which of the two is right?\n", id="show two to a third"),
        pytest.param("0 q -\n1 q -\nvote * -\n", id="two more, and vote over all rounds"),
        pytest.param("1 q -\n0 q,3 -\n", id="name a step of this round"),
    ],
)
def test_a_plan_of_a_further_round_may_name_every_earlier_step(text: str) -> None:
    validate(parse(text, 3), FURTHER)


@pytest.mark.parametrize(
    ("text", "first", "line", "words"),
    [
        ("1 q -\n", 0, None, "numbered from 3"),
        ("vote 0 -\n", 2, None, "numbered from 3"),
        ("0 q -\n1 q -\n0 q -\n", 3, 5, "at most 2 workers"),
        ("0 q -\n2 q -\n", 3, 4, "no worker 2"),
        ("redact 0 -\n0 3 -\n", 3, 3, "cannot be used"),
    ],
)
def test_a_plan_of_a_further_round_that_does_not_fit_says_where_and_why(
    text: str, first: int, line: int | None, words: str
) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        validate(parse(text, first), FURTHER)
    assert caught.value.line == line


def test_the_pool_of_a_round_is_built_from_what_was_heard() -> None:
    assert (FURTHER.first, FURTHER.may_stop, FURTHER.max_steps, FURTHER.max_calls) == (
        3,
        True,
        5,
        2,
    )
    assert PlanPool.of(replace(ASKED, heard=heard("", ""))).may_stop is False
    assert PlanPool.of(replace(ASKED, heard=heard("a"))).max_steps == 5
    assert PlanPool.of(replace(ASKED, heard=heard(*"abcdefg"))).max_steps == 3
    spent = PlanPool.of(replace(ASKED, heard=heard(*"abcdefghij")))
    assert spent.max_steps == 0
    validate(Plan(first=10), spent)


def test_when_nothing_stands_and_no_step_is_left_no_plan_is_possible() -> None:
    with pytest.raises(PlanError):
        PlanPool.of(replace(ASKED, heard=heard(*[""] * 10)))


@pytest.mark.parametrize("numbers", [(1,), (0, 0), (0, 2), (1, 0), tuple(range(11))])
def test_answers_that_are_misnumbered_make_no_pool(numbers: tuple[int, ...]) -> None:
    told = tuple(Heard(number, 0, "a", 1) for number in numbers)
    with pytest.raises(PlanError, match="numbered from 0"):
        PlanPool.of(replace(ASKED, heard=told))


def test_what_was_heard_counts_for_a_mask_as_made_from_everything() -> None:
    """However an earlier round came by it, no mask may take an answer for harmless."""
    told = heard("a", "b", workers=(1, None))
    pool = replace(PlanPool.of(replace(ASKED, heard=told)), mask=ClearedMask(frozenset({0})))
    validate(parse("0 0,1 -\n", 2), pool)
    validate(parse("1 - -\n", 2), pool)
    for leak in ["1 0 -\n", "1 1 -\n", "1 * -\n", "vote 1 -\n1 2 -\n"]:
        with pytest.raises(PlanError, match="may not be shown"):
            validate(parse(leak, 2), pool)


def test_a_declassifier_of_an_earlier_round_is_seen_by_a_mask_that_is_told_of_it() -> None:
    earlier = (Head(0, View(True, ()), False), Head(Builtin.REDACT, View(False, (0,)), False))
    pool = PlanPool(2, earlier=earlier, mask=ClearedMask(frozenset({0})))
    validate(parse("1 1 -\n", 2), pool)
    with pytest.raises(PlanError, match="may not be shown"):
        validate(parse("1 0 -\n", 2), pool)


def test_a_request_for_a_single_worker_stays_one_in_a_further_round() -> None:
    pool = PlanPool.of(replace(ASKED, one_step=True))
    validate(parse("1 q -\n", 3), pool)
    for text in ["vote 0 -\n", "0 q -\n1 q -\n"]:
        with pytest.raises(PlanError):
            validate(parse(text, 3), pool)
