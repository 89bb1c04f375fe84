"""The questions that cards are measured with, and the judge of answers to them."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.card_judging import right
from bench.card_questions import Question, questions


def test_every_domain_has_thirty_different_questions() -> None:
    asked = questions()
    assert Counter(one.domain for one in asked) == {"math": 30, "code": 30, "general": 30}
    assert len({one.text for one in asked}) == len(asked)
    assert asked == questions()


def test_every_accepted_spelling_is_right_and_a_wrong_one_is_not() -> None:
    for one in questions():
        assert all(right(one, spelling) for spelling in one.accepted), one
        assert not right(one, "I cannot say."), one
        assert not right(one, "The answer is -17."), one


@pytest.mark.parametrize(
    ("domain", "accepted", "answer", "is_right"),
    [
        ("math", "33", "4 * 4 = 16, and 50 - 16 - 1 = 33.\n\nMarta gets 33 euros back.", True),
        ("math", "33", "She has 33 euros, and then 12 more. The answer is 45.", False),
        ("math", "9", "7x = 63\n\nx = 9", True),
        ("math", "9", "We have 9. Then we go on and find 12 of", False),
        ("code", "xs[-1]", "```python\nxs[-1]\n```\n\nThis gives the last element.", True),
        ("code", "xs[-1]", "```python\n# the last one\nxs[ -1 ]  # so\n```", True),
        ("code", "xs[-1]", "```python\ndef last(xs):\n    return xs[-1]\n```", False),
        ("code", "xs[-1]", "last = xs[-1]", True),
        ("code", "n==0", "n = 0", False),
        ("code", "k in d", "`k not in d`", False),
        ("code", "pmal", "The function returns `'pmal'`, since `[::-1]` turns it round.", True),
        ("code", "pmal", "The function turns `pmal` round, and so it returns `lamp`.", False),
        ("general", "Rome", "Rome is the capital of Italy.", True),
        ("general", "Rome", "Many believe it is Rome, but it is Milan.", False),
        ("general", "Rome", "It is Milan. Rome is older.", False),
        ("general", "yen", "The currency is called kyeng.", False),
    ],
)
def test_an_answer_is_right_by_what_it_concludes_with(
    domain: str, accepted: str, answer: str, is_right: bool
) -> None:
    assert right(Question(domain, "?", (accepted,)), answer) is is_right
