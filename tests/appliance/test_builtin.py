"""The vote: which answers agree, and which of them wins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.workers.builtin import vote

LONG = "First we look at what is given, then we add it all up step by step, and so we find: "


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["a"], 0),
        (["a", "b"], 0),
        (["a", "b", "b"], 1),
        (["b", "a", "a", "b"], 0),
        (["Paris", "London", "paris."], 0),
        (["London", "**Paris**", '"paris"'], 1),
        (["7", "1,000", "1000.0"], 1),
        (["7", "$1,000", "1000"], 1),
        (["1", "0.5", "0.50", ".5"], 1),
        (["3", "-0", "0.0", "0"], 1),
        (["9", "−5", "-5"], 1),
        (["50", "50%", "50 %"], 0),
        (["1,2,3", "123", "x", "123"], 1),
        (["1e3", "1000", "1000"], 1),
        (["n", "ＹＥＳ", "yes"], 1),
        (["a  b", "c", "a\nb"], 0),
        (["", "", "a"], 2),
        (["", " "], 0),
        (["?!", "a"], 1),
        ([LONG + "42", "41", "42"], 0),
        (["41", LONG + "x = 42.", LONG + "it is 42"], 1),
        ([r"so \boxed{7}", "8", r"9, no: \boxed{ 7.0 }"], 0),
        ([r"\boxed{1} then \boxed{2}", "1", "2", "2"], 0),
        ([LONG + "no number", "b", LONG + "No  number."], 0),
        (["9" * 5000, "1", "9" * 5000], 0),
    ],
)
def test_the_answer_that_most_agree_with_wins_and_of_equals_the_earliest(answers, winner):
    assert vote(answers) == winner


def test_without_answers_there_is_no_vote():
    with pytest.raises(ValueError, match="at least one"):
        vote([])


def test_answers_count_by_what_they_conclude_with():
    said = "The answer is 42, since six times seven is that."
    assert vote([r"\boxed{41}", "42", said, "41"]) == 0
    assert vote([r"\boxed{41}", "42", said, "41", "#### 42"]) == 1


def test_prose_agrees_by_its_text_alone():
    assert vote([LONG + "one", LONG + "two", LONG + "two"]) == 1
    assert vote([LONG + "one", LONG + "two", LONG + "three"]) == 0


@given(st.lists(st.text(max_size=200), min_size=1, max_size=8))
def test_any_texts_have_a_winner_and_always_the_same(answers):
    winner = vote(answers)
    assert 0 <= winner < len(answers)
    assert vote(list(answers)) == winner


@given(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=9))
def test_a_strict_majority_always_wins(answers):
    for name in "ab":
        if answers.count(name) * 2 > len(answers):
            assert answers[vote(answers)] == name
