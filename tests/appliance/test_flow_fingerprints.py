"""A long shared run is always found, whatever stands around it and however it is laid out."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conductor.flow.fingerprints import (
    ALIGNED,
    GUARANTEE,
    LENGTH,
    kept,
    letters,
    looked_up,
    unlike,
)

runs = st.text("abcdefghijklmnopqrstuvwxyzäß0123456789", max_size=130).map(letters)


@settings(max_examples=400, deadline=None)
@given(runs, runs, runs, runs, st.integers(0, 2**32), st.integers(GUARANTEE, GUARANTEE + 60))
def test_a_shared_run_of_the_guaranteed_length_is_found_wherever_it_stands(
    a: bytes, b: bytes, c: bytes, d: bytes, seed: int, length: int
) -> None:
    shared = prose(seed, length)
    assert kept(a + shared + b) & set(looked_up(c + shared + d))


@settings(max_examples=300, deadline=None)
@given(runs, runs, st.integers(0, 2**32), st.integers(ALIGNED, GUARANTEE - 1))
def test_a_short_text_is_found_wherever_it_stands(
    c: bytes, d: bytes, seed: int, length: int
) -> None:
    assert kept(prose(seed, length)) & set(looked_up(c + prose(seed, length) + d))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, LENGTH - 1), runs, runs)
def test_no_run_below_the_length_of_a_fingerprint_is_ever_found(
    seed: int, length: int, c: bytes, d: bytes
) -> None:
    shared = prose(seed, length)
    mine, other = b"1" * 60 + shared + b"2" * 60, b"3" * 60 + shared + b"4" * 60
    assume(not kept(b"1" * 60 + b"2" * 60) & set(looked_up(b"3" * 60 + b"4" * 60)))
    assert not kept(mine) & set(looked_up(other))


def prose(seed: int, length: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=length))


@pytest.mark.parametrize("length", range(LENGTH - 1, 2 * GUARANTEE))
def test_a_text_is_found_in_itself_from_the_length_of_a_fingerprint_on(length: int) -> None:
    of = prose(length, length)
    assert bool(kept(of) & set(looked_up(of))) is (length >= LENGTH)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The result is 42.", "the\n\tRESULT\u00a0is -- **42**"),
        ("„Größe“ und “Maß”", "“GRÖSSE” UND „MASS“"),
        ("cafe\u0301 ﬁn", "café fin"),
        ("zero\u200bwidth\u00adsoft", "zerowidthsoft"),
        ("１２３", "123"),
    ],
)
def test_layout_case_quotes_and_compatibility_forms_change_nothing(one: str, other: str) -> None:
    assert letters(one) == letters(other)


def test_other_scripts_and_broken_unicode_have_letters_too() -> None:
    assert letters("漢字、かな。") != b"" and letters("漢字") in letters("漢字、かな。")
    assert letters("a\ud800b") == b"ab"
    assert letters(" .,;\n") == b""


def test_what_a_text_says_by_itself_leaves_out_what_it_was_shown() -> None:
    quoted, own = prose(1, 200), prose(2, 200)
    by_itself = unlike(quoted + own, b"xyz" + quoted)
    assert not by_itself & kept(quoted)
    assert by_itself & set(looked_up(own))
    assert unlike(own, b"") == kept(own) and unlike(own, own) == set()
