"""The written-down engine follows its rules, and sees cards, never places."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Candidate, PlanRequest, Preference
from conductor.errors import PlanError
from conductor.plan.language import Plan, parse, show
from conductor.plan.validate import PlanPool, validate
from conductor.planner.default import COMBINE, DefaultEngine, plan_by_rules
from conductor.planner.domain import domain
from conductor.planner.ranking import skill
from support.plans import candidate, heard, request

CHEAP_WEAK = candidate(price=0.0, general=0.3, code=0.2, math=0.1)
CHEAP_FAIR = candidate(price=0.1, general=0.6, code=0.75, math=0.4)
DEAR_GOOD = candidate(price=5.0, local=False, general=0.9, code=0.88, math=0.9)
DEAREST = candidate(price=20.0, local=False, general=0.95, code=0.9, math=0.5)
POOL = (DEAR_GOOD, CHEAP_WEAK, DEAREST, CHEAP_FAIR)


def planned_text(asked: PlanRequest) -> str:
    return show(plan_by_rules(asked).plan)


@pytest.mark.parametrize(
    ("preference", "question", "expected"),
    [
        pytest.param("thrifty", "Who wrote Faust?", "3 q -\n", id="0.6 is enough for the thrifty"),
        pytest.param("balanced", "Who wrote Faust?", "0 q -\n", id="0.6 is not enough otherwise"),
        pytest.param("balanced", "Fix this python function", "3 q -\n", id="good enough at code"),
        pytest.param("balanced", "Solve the equation 3 + 4 = x", "0 q -\n", id="math has its own"),
    ],
)
def test_the_cheapest_that_is_good_enough_answers(
    preference: Preference, question: str, expected: str
) -> None:
    assert planned_text(request(*POOL, question=question, preference=preference)) == expected


def test_if_none_is_good_enough_the_most_skilled_answers() -> None:
    asked = request(CHEAP_WEAK, replace(CHEAP_FAIR, local=False))
    assert planned_text(asked) == "1 q -\n"


def test_stand_ins_are_everybody_else_the_most_skilled_first() -> None:
    planned = plan_by_rules(request(*POOL, preference="thrifty"))
    assert show(planned.plan) == "3 q -\n"
    assert planned.alternates == (2, 0, 1)


def test_price_counts_the_whole_conversation() -> None:
    by_input = replace(DEAR_GOOD, price=replace(DEAR_GOOD.price, input_usd_per_mtok=9.0,
                                                output_usd_per_mtok=1.0))  # fmt: skip
    asked = request(by_input, DEAR_GOOD)
    assert planned_text(asked) == "0 q -\n"  # the answer costs more than the short question
    assert planned_text(replace(asked, prompt_tokens=7000)) == "1 q -\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"local": False}, {"local": True}),
        ({"speed": 10.0}, {"speed": 20.0}),
        ({"general": 0.8}, {"general": 0.9}),
        ({"context": 4096}, {"context": 8192}),
    ],
)
def test_at_one_price_local_then_fast_then_skilled_then_roomy_wins(
    first: dict[str, float], second: dict[str, float]
) -> None:
    base = {"general": 0.8}
    asked = request(candidate(**{**base, **first}), candidate(**{**base, **second}))
    assert planned_text(asked) == "1 q -\n"


def test_exact_ties_go_to_the_lower_ordinal() -> None:
    assert planned_text(request(DEAR_GOOD, DEAR_GOOD)) == "0 q -\n"


def test_quality_has_the_two_best_answer_and_the_best_combine() -> None:
    planned = plan_by_rules(request(*POOL, preference="quality"))
    assert show(planned.plan) == f"2 q -\n0 q -\n2 q,0,1 {COMBINE}\n"
    assert planned.alternates == (2, 0, 3, 1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"one_step": True}, id="one step only"),
        pytest.param({"max_steps": 2}, id="too few steps"),
        pytest.param({"candidates": (DEAREST,)}, id="nobody to ask for a second opinion"),
        pytest.param({"candidates": (DEAREST, CHEAP_FAIR)}, id="the second is far weaker"),
    ],
)
def test_quality_asks_the_best_alone_when_a_second_opinion_is_no_use(
    change: dict[str, object],
) -> None:
    asked = replace(request(DEAREST, DEAR_GOOD, preference="quality"), **change)
    assert planned_text(asked) == "0 q -\n"


def test_no_candidate_is_an_error_and_not_a_plan() -> None:
    with pytest.raises(PlanError, match="no candidate"):
        plan_by_rules(replace(request(), candidates=()))


def test_workers_whose_window_is_too_small_are_left_out_while_others_fit() -> None:
    small, large = candidate(price=0, context=2048, general=0.9), candidate(context=32768)
    asked = replace(request(small, large), prompt_tokens=3000)
    assert planned_text(asked) == "1 q -\n"
    assert plan_by_rules(asked).alternates == ()
    assert planned_text(replace(asked, candidates=(small,))) == "0 q -\n"


def test_a_card_without_the_domain_is_read_by_general_then_by_its_lowest() -> None:
    assert skill(candidate(general=0.4, code=0.9).card, "math") == 0.4
    assert skill(candidate(code=0.9, law=0.3).card, "math") == 0.3
    assert skill(replace(candidate().card, skill={}), "math") == 0.0


cards = st.builds(
    candidate,
    price=st.sampled_from([0.0, 0.5, 1.0, 10.0]),
    local=st.booleans(),
    speed=st.sampled_from([10.0, 50.0]),
    context=st.sampled_from([512, 4096, 32768]),
    general=st.sampled_from([0.1, 0.5, 0.6, 0.7, 0.9, 1.0]),
)
requests = st.builds(
    PlanRequest,
    request_id=st.just("r"),
    question=st.text(max_size=40),
    candidates=st.lists(cards, min_size=1, max_size=8).map(tuple),
    preference=st.sampled_from(["thrifty", "balanced", "quality"]),
    max_steps=st.integers(1, 5),
    one_step=st.booleans(),
    prompt_tokens=st.integers(0, 5000),
    heard=st.lists(st.sampled_from(["", "", "", "4"]), max_size=9).map(
        lambda answers: (
            heard(*answers, workers=(0, *[None] * (len(answers) - 1))) if answers else ()
        )
    ),
    calls_left=st.integers(1, 8),
)


@settings(deadline=None)
@given(requests)
def test_every_plan_fits_its_request(asked: PlanRequest) -> None:
    planned = plan_by_rules(asked)
    validate(planned.plan, PlanPool.of(asked))
    assert len(set(planned.alternates)) == len(planned.alternates)


@settings(deadline=None)
@given(requests, st.randoms(use_true_random=False))
def test_shuffling_the_candidates_shuffles_the_choice(asked: PlanRequest, chance: object) -> None:
    order = list(range(len(asked.candidates)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    shuffled = replace(
        asked,
        candidates=tuple(asked.candidates[old] for old in order),
        heard=tuple(
            told if told.worker is None else replace(told, worker=order.index(told.worker))
            for told in asked.heard
        ),
    )
    assert choice(asked) == choice(shuffled)


def choice(asked: PlanRequest) -> list[Candidate] | None:
    """The candidates behind a plan and its stand-ins, by their cards."""
    try:
        planned = plan_by_rules(asked)
    except PlanError:
        return None
    ordinals = [step.worker for step in planned.plan.steps if isinstance(step.worker, int)]
    return [asked.candidates[ordinal] for ordinal in (*ordinals, *planned.alternates)]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Hello, who are you?", "general"),
        ("", "general"),
        ("What class of drug is aspirin?", "general"),
        ("Which famous building was finished in 1889?", "general"),
        ("Summarise this e-mail in two sentences: the meeting moves to 3 pm.", "general"),
        ("On 2024-05-03 it fell 25 %; call 030-123/45 about 10-12 of them.", "general"),
        ("Write a Python function that reverses a list.", "code"),
        ("def f(x):\n    return x + 1\n\nWhy does this fail?", "code"),
        ("SELECT name FROM users WHERE id = 3; is slow, how can this SQL be made faster?", "code"),
        ("Schreibe ein Programm in Java, das Primzahlen ausgibt.", "code"),
        ("What is 17 * 23 + 4? How many factors has it?", "math"),
        ("Solve the equation x^2 - 5x + 6 = 0.", "math"),
        (r"Compute $\frac{1}{2} + \frac{1}{3}$.", "math"),
        ("Wie viele Äpfel bleiben, wenn von 12 Äpfeln 25 % faul sind?", "math"),
        ("filler " * 20_000 + "\nNow solve the equation 2 + 3 = y.", "math"),
    ],
)
def test_the_domain_is_told_by_surface_marks(question: str, expected: str) -> None:
    assert domain(question) == expected


# -- further rounds ---------------------------------------------------------------------------


@pytest.mark.parametrize("preference", ["thrifty", "balanced", "quality"])
def test_an_answer_that_stands_is_kept_whoever_gave_it(preference: Preference) -> None:
    asked = request(*POOL, preference=preference)
    for told in [heard("4"), heard("4", ""), heard("", "4"), heard("4", workers=(None,))]:
        planned = plan_by_rules(replace(asked, heard=told, rounds_left=3))
        assert planned.plan == Plan(first=len(told))
        assert planned.look is False


def test_if_nothing_stands_those_that_gave_nothing_are_left_out() -> None:
    asked = request(*POOL, question="Who wrote Faust?")
    planned = plan_by_rules(replace(asked, heard=heard("", "", workers=(0, 2))))
    assert planned.plan == parse("3 q -\n", 2)
    assert planned.alternates == (1,)
    told = heard("", "", "", "", workers=(0, 1, 2, 3))
    assert plan_by_rules(replace(asked, heard=told)).plan == parse("0 q -\n", 4)


def test_two_opinions_in_a_further_round_are_those_of_that_round() -> None:
    told = heard("", "", workers=(1, None))
    planned = plan_by_rules(replace(request(*POOL, preference="quality"), heard=told))
    assert planned.plan == parse(f"2 q -\n0 q -\n2 q,2,3 {COMBINE}\n", 2)


def test_two_opinions_take_three_calls() -> None:
    asked = replace(request(*POOL, preference="quality"), calls_left=2)
    assert planned_text(asked) == "2 q -\n"


def test_without_a_call_left_only_what_stands_can_be_given() -> None:
    asked = replace(request(*POOL), calls_left=0)
    with pytest.raises(PlanError, match="no call"):
        plan_by_rules(asked)
    assert plan_by_rules(replace(asked, heard=heard("4"))).plan == Plan(first=1)


async def test_it_is_always_ready() -> None:
    engine = DefaultEngine()
    assert await engine.ready()
    assert (await engine.plan(request(DEAR_GOOD))).engine == "default"
