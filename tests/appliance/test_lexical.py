"""Lexical features: bounded for any text, each moved by what it is named after."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.planner.domain import domain, marks
from conductor.planner.lexical import FEATURES, lexical


def feature(name: str, text: str) -> float:
    return float(lexical(text)[FEATURES.index(name)])


def test_there_is_one_number_a_name():
    assert len(set(FEATURES)) == len(FEATURES)
    assert lexical("How many?").shape == (len(FEATURES),)
    assert lexical("How many?").dtype == np.float32


PLAIN = "Tell me about the sea"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("length", PLAIN + " and about the ships that sail on it"),
        ("lines", "Tell me\nabout\nthe sea"),
        ("word_length", "Characterise oceanographic sedimentation"),
        ("digits", "Tell me about 1914"),
        ("capitals", "TELL ME about the sea"),
        ("other_scripts", "Расскажи мне о море"),
        ("numbers", "Add 4, 5 and 6"),
        ("largest_number", "Is 1,000,003 a prime?"),
        ("decimals", "What is 0.5 of it?"),
        ("decimals", "What is 3/4 of it?"),
        ("operators", "Solve x = y + z * w"),
        ("latex", "Find \\sqrt{x} and \\alpha"),
        ("code", "def f(x):\n    return x == 1"),
        ("mathematics", "Compute the sum of the integers"),
        ("brackets", "f(g[h{0}])"),
        ("quotes", 'He said "no" and left'),
        ("question_marks", "And the sea?"),
        ("choices", "Which sea? (A) North (B) Baltic (C) Red"),
        ("choices", "Which sea?\nA. North\nB. Baltic"),
        ("gap", "The sea is ____ today"),
        ("how_many", "How many seas are there"),
        ("how_many", "Wie viele Meere gibt es"),
        ("asks_a_fact", "Who sailed round Africa first"),
        ("money", "It costs $5.20 a day"),
        ("money", "It costs 12 dollars"),
        ("percent", "It grew by 5%"),
    ],
)
def test_a_feature_rises_with_what_it_is_named_after(name, text):
    assert feature(name, text) > feature(name, PLAIN)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("money", "Find $5$ and $x$"),
        ("choices", "Mr. A. Smith met I. Jones"),
        ("asks_a_fact", "Tell me who did it"),
        ("how_many", "Show many of them"),
        ("numbers", "one two three"),
    ],
)
def test_what_only_resembles_it_does_not_count_fully(name, text):
    assert feature(name, text) < 0.5


@given(st.text(max_size=300))
def test_any_text_gives_numbers_from_0_to_1(text):
    values = lexical(text)
    assert np.isfinite(values).all() and (values >= 0).all() and (values <= 1).all()
    assert (values == lexical(text)).all()


HOSTILE = (
    "",
    "\0",
    "\ud800",
    "9" * 200_000,
    "9," * 100_000,
    "(" * 200_000,
    "\n" * 200_000,
    "A) " * 70_000,
    "\\a" * 100_000,
    "$1" * 100_000,
    "_" * 200_000,
    "٣" * 200_000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_read_in_no_time(text):
    start = time.perf_counter()
    values = lexical(text)
    assert time.perf_counter() - start < 2.0  # a pattern that backtracks takes minutes
    assert np.isfinite(values).all() and (values >= 0).all() and (values <= 1).all()


def test_both_ends_of_a_long_text_are_looked_at_and_all_of_it_is_counted():
    filler = "sea " * 5_000
    assert feature("percent", filler + "5%") == feature("percent", "5%" + filler) == 1.0
    assert feature("percent", filler + "5%" + filler) == 0.0
    assert feature("length", filler * 2) > feature("length", filler)


def test_a_domain_follows_from_its_marks():
    assert marks("def f(x): return x == 1") > (1, 0)
    for text in ("Compute the integral of the polynomial", "git push and docker", PLAIN):
        code, math = marks(text)
        found = domain(text)
        assert found == ("general" if max(code, math) < 2 else "code" if code >= math else "math")
