"""What counts as a token, and which slips of a model are undone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.declassify.kinds import KINDS, canonical, kind_of
from conductor.declassify.redact import marker
from conductor.declassify.tokens import (
    ALPHABET,
    CANDIDATE,
    ID_LETTERS,
    Nearby,
    is_like,
    token,
    within_one,
)

words = st.text("ABC:", max_size=6)


def holds_token(text: str) -> bool:
    return any(is_like(found[1]) for found in CANDIDATE.finditer(text))


@pytest.mark.parametrize(
    ("text", "is_token"),
    [
        ("⟦PERSON:kdfmwx⟧", True),
        ("so ⟦ person : KDF MWX ⟧ says", True),
        ("⟦PERSON;kdfmw⟧", True),
        ("⟦EMAIL:kdfmwxz⟧", True),
        ("⟦X:a1b2c3⟧", True),
        ("the meaning ⟦e⟧ of e", False),
        ("⟦e₁ + e₂⟧ρ", False),
        ("⟦PERSON⟧", False),
        ("⟦PERSON:kdfmwx", False),
        ("[PERSON:kdfmwx]", False),
        ("⟦" + "A" * 40 + ":kdfmwx⟧", False),
        ("", False),
    ],
)
def test_token_syntax_is_told_from_other_brackets(text: str, is_token: bool) -> None:
    assert holds_token(text) is is_token


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_makes_a_token_of_at_most_32_characters_and_a_marker_that_is_none(
    kind: str,
) -> None:
    made = token(f"{kind}:{'K' * ID_LETTERS}")
    assert CANDIDATE.fullmatch(made)
    assert holds_token(made)
    assert len(made) <= 32
    assert not holds_token(marker(kind))


def levenshtein(one: str, other: str) -> int:
    """By the book, to compare with."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]


@given(words, words)
def test_within_one_is_an_edit_distance_of_at_most_one(one: str, other: str) -> None:
    assert within_one(one, other) is (levenshtein(one, other) <= 1)


@given(st.sets(words, max_size=8), words)
def test_nearby_finds_exactly_the_bodies_within_one(known: set[str], body: str) -> None:
    nearby = Nearby()
    for one in known:
        nearby.add(one)
    assert nearby.all(body) == {one for one in known if levenshtein(one, body) <= 1}
    assert (nearby.only(body) is not None) is (len(nearby.all(body)) == 1)


@pytest.mark.parametrize(
    ("detector", "kind"),
    [
        ("person", "PERSON"),
        ("id.it.codicefiscale", "ID"),
        ("secret.aws", "CREDENTIAL"),
        ("custom.project-names", "ITEM"),
        ("something.new", "ITEM"),
    ],
)
def test_a_kind_is_coarser_than_a_detector_and_never_a_sites_own_word(
    detector: str, kind: str
) -> None:
    assert kind_of(detector) == kind


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        ("PERSON", "Anna Rossi", "ANNA  ROSSI", True),
        ("PERSON", "Anna-Maria Rossi", "anna maria rossi", True),
        ("PERSON", "Anna\u200b Rossi", "Anna Rossi", True),
        ("PERSON", "Anna Rossi", "Anna Russi", False),
        ("PERSON", "José Gil", "Jose Gil", False),
        ("PERSON", "Lee Ann", "Leeann", False),
        ("IBAN", "IT60 X054 2811", "it60x0542811", True),
        ("CARD", "4111-1111 1111.1111", "4111111111111111", True),
        ("PHONE", "0039 055 12 34", "+39-055/1234", True),
        ("PHONE", "055 1234", "055 1235", False),
        ("EMAIL", "Anna@Example.org", "anna@example.org", True),
        ("EMAIL", "an.na@example.org", "anna@example.org", False),
        ("IP", "1.12.3.4", "11.2.3.4", False),
        ("ADDRESS", "Via Roma 1-2", "Via Roma 12", False),
        ("CREDENTIAL", "hunter2A", "hunter2a", False),
        ("ITEM", "Ab1", "aB1", False),
        ("PERSON", "-", "--", False),
    ],
)
def test_spellings_of_one_value_are_one_and_two_values_never(
    kind: str, one: str, other: str, same: bool
) -> None:
    assert (canonical(kind, one) == canonical(kind, other)) is same


def test_ids_hold_neither_digits_nor_vowels() -> None:
    assert not set(ALPHABET) & set("aeiou0123456789")
    assert len(ALPHABET) ** ID_LETTERS > 40_000_000
