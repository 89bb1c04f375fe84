"""What an approver is shown before signing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.cli.approvals import readable

LETTERS = st.text(st.characters(exclude_categories=["Cs"]))


@given(LETTERS)
def test_what_is_shown_means_the_same_and_hides_nothing(text: str) -> None:
    body = json.dumps({"messages": [{"content": text}]}, ensure_ascii=False).encode()
    shown = readable(body)
    assert json.loads(shown) == json.loads(body)
    assert all(one.isprintable() for one in shown.replace("\n", ""))


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\x9b31m", "\U000e0041", "\u2028"])
def test_what_a_terminal_would_obey_or_hide_is_written_out(hidden: str) -> None:
    shown = readable(json.dumps({"text": f"a{hidden}b"}, ensure_ascii=False).encode())
    assert hidden not in shown and "\\u" in shown
