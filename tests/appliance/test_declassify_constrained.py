"""One of a few answers, or nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.declassify.constrained import LeakBudget, bits, read
from conductor.policy.declassifiers import Answers

YES_NO = Answers(("yes", "no"))
WORDS = Answers(("Low risk", "High risk"))
BOOL = Answers(("true", "false"))
MARKS = Answers(low=-5, high=10)

domains = st.one_of(
    st.lists(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(
            lambda word: word == word.strip()
        ),
        min_size=2,
        max_size=6,
        unique_by=str.casefold,
    ).map(lambda words: Answers(tuple(words))),
    st.tuples(st.integers(-99, 99), st.integers(1, 50)).map(
        lambda pair: Answers(low=pair[0], high=pair[0] + pair[1])
    ),
)


@pytest.mark.parametrize(
    ("domain", "answer", "meant"),
    [
        (YES_NO, "yes", "yes"),
        (YES_NO, " YES\n", "yes"),
        (YES_NO, "yes.", None),
        (YES_NO, "yes, because Anna is ill", None),
        (YES_NO, "y\u200bes", None),
        (YES_NO, '"yes"', None),
        (YES_NO, "", None),
        (YES_NO, "yes" + " " * 300, None),
        (WORDS, "low RISK", "Low risk"),
        (WORDS, "low  risk", None),
        (BOOL, "True", "true"),
        (BOOL, "1", None),
        (MARKS, "10", "10"),
        (MARKS, "-5", "-5"),
        (MARKS, "0", "0"),
        (MARKS, "11", None),
        (MARKS, "-6", None),
        (MARKS, "07", None),
        (MARKS, "+7", None),
        (MARKS, "-0", None),
        (MARKS, "7.0", None),
        (MARKS, "7 of 10", None),
        (MARKS, "٧", None),
        (MARKS, "9" * 5_000, None),
    ],
)
def test_an_answer_is_one_of_the_domain_or_none(
    domain: Answers, answer: str, meant: str | None
) -> None:
    assert read(domain, answer) == meant


@given(domains, st.text())
def test_nothing_comes_out_that_is_not_in_the_domain(domain: Answers, answer: str) -> None:
    said = read(domain, answer)
    allowed = domain.words or tuple(map(str, range(domain.low, domain.high + 1)))
    assert said is None or said in allowed


@given(domains, st.data())
def test_every_answer_of_the_domain_is_read_as_itself(domain: Answers, data: st.DataObject) -> None:
    allowed = domain.words or tuple(map(str, range(domain.low, domain.high + 1)))
    answer = data.draw(st.sampled_from(allowed))
    assert read(domain, f" {answer}\n") == answer


def test_a_refusal_counts_as_an_outcome() -> None:
    assert bits(Answers(("a", "b", "c"))) == 2.0
    assert bits(Answers(low=0, high=1022)) == 10.0


def test_a_budget_lets_no_more_through_than_it_holds() -> None:
    budget = LeakBudget(4)
    assert [budget.spend(1.5), budget.spend(2.5), budget.spend(0.1)] == [True, True, False]
    assert budget.spent_bits == 4
    assert budget.spend(0)


@pytest.mark.parametrize("amount", [-1.0, math.inf, math.nan, -math.inf])
def test_what_is_no_amount_is_not_spent(amount: float) -> None:
    budget = LeakBudget(4)
    assert not budget.spend(amount)
    assert budget.spent_bits == 0


@given(st.floats(0, 100), st.lists(st.floats(0, 50)))
def test_no_order_of_spending_passes_the_limit(limit: float, amounts: list[float]) -> None:
    budget = LeakBudget(limit)
    spent = sum(amount for amount in amounts if budget.spend(amount))
    assert budget.spent_bits == spent <= limit + 1e-6
