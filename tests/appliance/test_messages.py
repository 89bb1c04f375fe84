"""What a step's worker is shown, to the letter."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Body
from conductor.run.messages import (
    DEFAULT_INSTRUCTION,
    Shown,
    added_bytes,
    answer_text,
    step_messages,
)

TALK: list[Body] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is it?"},
]
FIRST = Shown(0, "Find it.", "It is Rome.")
SECOND = Shown(2, "", "Roma")


def test_the_question_alone_passes_through_untouched() -> None:
    assert step_messages(TALK, question=True, shown=[], subtask="") == TALK


def test_an_instruction_follows_the_conversation_as_a_message_of_its_own() -> None:
    found = step_messages(TALK, question=True, shown=[], subtask="Check the date.")
    assert found == [*TALK, {"role": "user", "content": "Check the date."}]


def test_earlier_answers_stand_before_the_instruction_with_number_and_task() -> None:
    found = step_messages(TALK, question=True, shown=[FIRST, SECOND], subtask="Combine.")
    assert found[:-1] == TALK
    assert found[-1]["content"] == (
        "Result of step 1 (its task: Find it.):\nIt is Rome.\n\nResult of step 3:\nRoma\n\nCombine."
    )


def test_without_an_instruction_the_answers_come_with_the_default_one() -> None:
    found = step_messages(TALK, question=True, shown=[SECOND], subtask="")
    assert found[-1]["content"] == f"Result of step 3:\nRoma\n\n{DEFAULT_INSTRUCTION}"


@pytest.mark.parametrize("shown", [[], [FIRST]])
def test_a_step_that_may_not_see_the_question_sees_none_of_the_conversation(
    shown: list[Shown],
) -> None:
    found = step_messages(TALK, question=False, shown=shown, subtask="Guess.")
    assert len(found) == 1 and found[0]["role"] == "user"
    assert not any(message["content"] in found[0]["content"] for message in TALK)


def test_the_clients_own_messages_are_never_changed() -> None:
    before = [dict(message) for message in TALK]
    for question, shown, subtask in product((True, False), ([], [FIRST]), ("", "Do.")):
        step_messages(TALK, question=question, shown=shown, subtask=subtask).append({})
    assert before == TALK


texts = st.text(max_size=30)


@given(st.lists(st.tuples(texts, texts), max_size=4), texts, st.booleans())
def test_what_is_added_is_counted_to_the_byte(
    results: list[tuple[str, str]], subtask: str, question: bool
) -> None:
    shown = [Shown(step, task, answer) for step, (task, answer) in enumerate(results)]
    found = step_messages(TALK, question=question, shown=shown, subtask=subtask)
    added = found[len(TALK) :] if question else found
    if shown or subtask:
        assert added_bytes(shown, subtask) == len(added[0]["content"].encode())
    else:
        assert added_bytes(shown, subtask) == 0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "Rome"}, "Rome"),
        ({"content": ""}, ""),
        ({"content": None, "refusal": "No."}, "No."),
        ({"content": None, "tool_calls": [{}]}, ""),
        ({"content": [{"type": "text", "text": "Rome"}]}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_text_of_an_answer_is_that_of_its_first_choice(message: Any, text: str) -> None:
    other = {"message": {"content": "another"}}
    assert answer_text({"choices": [{"message": message}, other]}) == text


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": None}, {"choices": [{}]}])
def test_an_answer_without_a_message_has_no_text(body: Body) -> None:
    assert answer_text(body) == ""
