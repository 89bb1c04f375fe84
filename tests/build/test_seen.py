"""Prompts that training saw are recognised, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.errors import BundleError
from conductor_build.seen import DIGEST_BYTES, Seen, normalise, seen_digest

QUESTION = "How many eggs does Ada's farm lay in 3 days, if x+1 = 7?"


@pytest.mark.parametrize(
    "spelling",
    [
        QUESTION.upper(),
        f"\n  {QUESTION}\t\n",
        QUESTION.replace(" ", " \r\n "),
        QUESTION.replace(" ", "\u00a0"),
        QUESTION.replace("7", "７"),
        "\ufeff" + QUESTION.replace("eggs", "e\u200bggs"),
    ],
)
def test_another_spelling_is_the_same_prompt(spelling: str) -> None:
    assert Seen.of([QUESTION]).contains(spelling)


@pytest.mark.parametrize(
    "other",
    [
        QUESTION.replace("+", "-"),
        QUESTION.replace("3", "4"),
        QUESTION.replace("1 = 7", "1=7"),
        QUESTION[:-1],
        QUESTION + " Why?",
        "",
    ],
)
def test_another_question_is_another_prompt(other: str) -> None:
    assert not Seen.of([QUESTION]).contains(other)


@given(questions=st.lists(st.text(max_size=20), max_size=8))
def test_a_file_holds_what_was_put_in_whatever_the_order(questions: list[str]) -> None:
    data = Seen.of(questions).to_bytes()
    assert data == Seen.of(reversed(questions)).to_bytes()
    seen = Seen.from_bytes(data)
    assert all(map(seen.contains, questions))
    assert len(seen) == len(set(map(normalise, questions)))


@given(text=st.text(st.characters(), max_size=30))
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_every_string_has_a_digest() -> None:
    for text in ("", "\ud800", "\x00", "\u0345" * 1000, "x " * 100_000):
        assert len(seen_digest(text)) == DIGEST_BYTES


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        bytes(DIGEST_BYTES + 1),
        b"b" * DIGEST_BYTES + b"a" * DIGEST_BYTES,
        bytes(2 * DIGEST_BYTES),
    ],
    ids=["short", "long", "falling", "twice"],
)
def test_a_file_in_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        Seen.from_bytes(data)
