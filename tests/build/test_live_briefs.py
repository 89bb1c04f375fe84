"""What a simulated worker reads is what the daemon writes."""

from __future__ import annotations

import pytest

from conductor.run.messages import Shown, step_messages
from conductor_build.live import briefs
from conductor_build.live.briefs import Brief

ASKED = [{"role": "user", "content": "What is it?"}]
TWO = [Shown(0, "", "It is a hat.\n\nOr two."), Shown(3, "Check (it) well.", "No.")]


@pytest.mark.parametrize("question", [True, False])
@pytest.mark.parametrize("shown", [[], TWO[:1], TWO])
@pytest.mark.parametrize("subtask", ["", "Say it again."])
def test_a_brief_is_read_back_as_it_was_written(question, shown, subtask):
    messages = step_messages(ASKED, question=question, shown=shown, subtask=subtask)
    expected = Brief(
        "What is it?" if question else "", tuple(item.answer for item in shown), subtask
    )
    if not question and not shown:
        # Nothing tells a lone instruction from a question.
        expected = Brief(messages[0]["content"], (), "")
    assert briefs.read(messages) == expected


def test_a_question_is_found_in_what_another_worker_restated():
    restated = f"{briefs.STATED}What is it?"
    messages = step_messages([], question=False, shown=[Shown(0, "", restated)], subtask="Solve.")
    assert "What is it?" in list(briefs.read(messages).candidates())
