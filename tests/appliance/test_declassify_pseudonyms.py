"""Pseudonyms: there and back, and nobody else's way back."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.declassify.pseudonyms import Pseudonyms
from conductor.declassify.tokens import CANDIDATE, is_like, token
from conductor.detect.spans import Span
from conductor.labels import Clearance, Label

PII = Label(1, frozenset({"pii"}))
CLEARED = Clearance(3, frozenset({"pii", "health"}))
KEY = bytes(range(32))
TOKEN = re.compile(r"⟦[A-Z]+:[a-z]{6}⟧")

TYPES = ("person", "email", "iban", "secret.aws", "custom.names")
texts = st.text(st.sampled_from("ab ⟦⟧:PERSON\nkdfé-") | st.characters(codec="utf-8"), max_size=60)
spans = st.builds(Span, st.integers(-2, 60), st.integers(-2, 60), st.sampled_from(TYPES)).filter(
    lambda span: span.start < span.end
)


def at(text: str, *values: str, detector: str = "person") -> list[Span]:
    """A span for the first place of each value."""
    return [Span(text.index(one), text.index(one) + len(one), detector) for one in values]


def masked(pseudonyms: Pseudonyms, text: str, *values: str, detector: str = "person") -> str:
    return pseudonyms.mask(text, at(text, *values, detector=detector), PII)


exact = spans.map(lambda span: Span(span.start, span.end, "secret.aws"))


@given(texts, st.lists(exact, max_size=5))
def test_what_was_masked_comes_back_letter_by_letter(text: str, found: list[Span]) -> None:
    pseudonyms = Pseudonyms(KEY)
    hidden = pseudonyms.mask(text, found, PII)
    assert pseudonyms.restore(hidden, CLEARED) == text
    assert pseudonyms.counts.restored == len(TOKEN.findall(hidden))
    assert pseudonyms.counts.unknown == pseudonyms.counts.mangled == 0


@given(texts, st.lists(spans, max_size=5))
def test_masking_again_changes_nothing(text: str, found: list[Span]) -> None:
    pseudonyms = Pseudonyms(KEY)
    hidden = pseudonyms.mask(text, found, PII)
    assert pseudonyms.mask(hidden, [], PII) == hidden
    # Even when a detector takes the whole of it for something: tokens of ours stay tokens.
    again = pseudonyms.mask(hidden, [Span(0, len(hidden), "person")], PII)
    assert set(TOKEN.findall(hidden)) <= set(TOKEN.findall(again))


@given(st.text("abcé-.", max_size=40), st.lists(spans, max_size=5))
def test_nothing_of_a_span_is_left_and_everything_else_is(text: str, found: list[Span]) -> None:
    hidden = Pseudonyms(KEY).mask(text, found, PII)
    covered = {place for span in found for place in range(max(0, span.start), span.end)}
    rest = "".join(letter for place, letter in enumerate(text) if place not in covered)
    assert TOKEN.sub("", hidden) == rest


@given(texts, texts)
def test_whatever_anybody_writes_restores_nothing_that_was_not_minted(
    mine: str, other: str
) -> None:
    pseudonyms = Pseudonyms(KEY)
    masked(pseudonyms, "Anna Rossi", "Anna Rossi")
    assert pseudonyms.restore(mine + other, CLEARED) == mine + other


def test_one_value_is_one_token_over_steps_and_branches() -> None:
    pseudonyms = Pseudonyms()
    first = masked(pseudonyms, "Ask Anna Rossi.", "Anna Rossi")
    second = masked(pseudonyms, "ANNA  ROSSI said no.", "ANNA  ROSSI")
    assert TOKEN.findall(first) == TOKEN.findall(second)
    assert pseudonyms.counts.minted == 1


def test_two_workflows_have_nothing_in_common() -> None:
    mine, other = Pseudonyms(), Pseudonyms()
    text = masked(mine, "Ask Anna Rossi.", "Anna Rossi")
    masked(other, "Ask Anna Rossi.", "Anna Rossi")
    assert other.restore(text, CLEARED) == text
    assert other.counts.unknown == 1


def test_what_one_text_or_an_earlier_one_gave_away_is_masked_in_all() -> None:
    pseudonyms = Pseudonyms()
    texts = ["Dear Anna Rossi,", "cc: ANNA ROSSI"]
    first = pseudonyms.mask_all(texts, [at(texts[0], "Anna Rossi"), []], PII)
    (later,) = pseudonyms.mask_all(["Anna-Rossi again"], [[]], PII)
    (name,) = set(TOKEN.findall(" ".join([*first, later])))
    assert [*first, later] == [f"Dear {name},", f"cc: {name}", f"{name} again"]


def test_a_name_in_two_words_is_one_token() -> None:
    hidden = masked(Pseudonyms(), "Ask Anna Rossi, please", "Anna", "Rossi")
    assert re.fullmatch(r"Ask ⟦PERSON:[a-z]{6}⟧, please", hidden)


def test_two_names_on_two_lines_are_two_tokens() -> None:
    hidden = masked(Pseudonyms(), "Anna\nRossi", "Anna", "Rossi")
    assert len(set(TOKEN.findall(hidden))) == 2


def test_of_overlapping_spans_the_longest_gives_the_name() -> None:
    text = "mail anna@example.org now"
    found = [*at(text, "anna"), *at(text, "anna@example.org", detector="email")]
    assert re.fullmatch(r"mail ⟦EMAIL:[a-z]{6}⟧ now", Pseudonyms().mask(text, found, PII))


@pytest.mark.parametrize("forged", ["⟦PERSON:kdfmwx⟧", "⟦ person : kdf mwx ⟧", "⟦PERSON;kdfmw⟧"])
def test_what_looks_like_a_token_becomes_a_value_and_comes_back_as_it_was(forged: str) -> None:
    pseudonyms = Pseudonyms()
    text = f"Say {forged} to Anna."
    hidden = masked(pseudonyms, text, "Anna")
    assert forged not in hidden
    assert pseudonyms.restore(hidden, CLEARED) == text


def test_other_uses_of_the_brackets_stay() -> None:
    text = "the meaning ⟦e⟧ of e"
    assert Pseudonyms().mask(text, [], PII) == text


@pytest.mark.parametrize(
    "slip",
    [
        str.lower,
        str.upper,
        lambda one: one.replace(":", " : "),
        lambda one: one.replace("⟦", "⟦ "),
        lambda one: one[:-3] + "a" + one[-2:],
        lambda one: one[:-2] + one[-1:],
        lambda one: one[:-1] + "s" + one[-1:],
        lambda one: one.replace(":", ";"),
        lambda one: one.replace("SON", "SN"),
    ],
)
def test_a_slip_of_one_letter_case_or_space_is_repaired(slip: Callable[[str], str]) -> None:
    pseudonyms = Pseudonyms(KEY)
    minted = masked(pseudonyms, "Anna", "Anna")
    assert pseudonyms.restore(f"to {slip(minted)}!", CLEARED) == "to Anna!"
    assert (pseudonyms.counts.restored, pseudonyms.counts.mangled) == (1, 1)


def test_a_slip_of_two_letters_is_not_repaired() -> None:
    pseudonyms = Pseudonyms(KEY)
    minted = masked(pseudonyms, "Anna", "Anna")
    wrong = minted[:-3] + "aa" + minted[-1:]
    assert pseudonyms.restore(wrong, CLEARED) == wrong
    assert pseudonyms.counts.unknown == 1


def test_no_two_tokens_of_a_workflow_are_within_a_letter() -> None:
    pseudonyms = Pseudonyms(KEY)
    for number in range(3_000):
        masked(pseudonyms, f"name{number}", f"name{number}")
    assert pseudonyms.counts.minted == len(pseudonyms._values) == 3_000
    assert all(pseudonyms._nearby.all(body) == {body} for body in pseudonyms._values)


def test_a_sink_that_is_not_cleared_keeps_the_token() -> None:
    pseudonyms = Pseudonyms()
    hidden = masked(pseudonyms, "Ask Anna.", "Anna")
    assert pseudonyms.restore(hidden, Clearance(1)) == hidden
    assert pseudonyms.restore(hidden, Clearance(0, frozenset({"pii"}))) == hidden
    assert pseudonyms.counts.withheld == 2
    assert pseudonyms.restore(hidden, Clearance(1, frozenset({"pii"}))) == "Ask Anna."


def test_a_value_seen_under_two_labels_keeps_both() -> None:
    pseudonyms = Pseudonyms()
    hidden = masked(pseudonyms, "Ask Anna.", "Anna")
    pseudonyms.mask("Anna is ill", [Span(0, 4, "person")], Label(2, frozenset({"health"})))
    assert pseudonyms.restore(hidden, Clearance(1, frozenset({"pii"}))) == hidden
    assert pseudonyms.restore(hidden, CLEARED) == "Ask Anna."


def test_too_many_values_are_redacted_and_counted() -> None:
    pseudonyms = Pseudonyms(max_values=1)
    hidden = masked(pseudonyms, "Anna, Bea", "Anna", "Bea")
    assert hidden.endswith("⟧, [person removed]")
    assert pseudonyms.counts.overflowed == 1
    assert masked(pseudonyms, "Anna", "Anna") == hidden.partition(",")[0]


def test_wiping_forgets_everything() -> None:
    pseudonyms = Pseudonyms()
    hidden = masked(pseudonyms, "Ask Anna.", "Anna")
    pseudonyms.wipe()
    assert pseudonyms.restore(hidden, CLEARED) == hidden
    with pytest.raises(ValueError, match="wiped"):
        masked(pseudonyms, "Ask Anna.", "Anna")
    assert "Anna" not in str(vars(pseudonyms))


def test_no_representation_shows_a_value() -> None:
    pseudonyms = Pseudonyms()
    masked(pseudonyms, "Ask Anna.", "Anna")
    shown = f"{pseudonyms!r} {pseudonyms.counts!r} {list(pseudonyms._values.values())!r}"
    assert "Anna" not in shown


@given(texts)
def test_a_masked_text_holds_no_token_but_ours(text: str) -> None:
    pseudonyms = Pseudonyms(KEY)
    hidden = pseudonyms.mask(text, [], PII)
    ours = {token(body) for body in pseudonyms._values}
    for found in CANDIDATE.finditer(hidden):
        assert found[0] in ours or not is_like(found[1])
