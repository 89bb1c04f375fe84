"""Names without the model: windows, words, scripts, and the file format, as tables."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Likelihood
from conductor.detect.namesproto import Writer, read_graph
from conductor.detect.nameswindows import OVERLAP, WINDOW, foreign, windows
from conductor.detect.nameswords import Word, merged, spans_of
from conductor.detect.spans import Span
from detection.names_set import LANGUAGES, samples

# -- windows --------------------------------------------------------------------------------------


@given(text=st.text(alphabet="ab A.\n,ß", max_size=3000))
def test_windows_cover_every_text_and_none_is_too_long(text):
    at = 0
    for start, end in windows(text):
        assert start <= at < end <= start + WINDOW
        at = end
    assert at == len(text)


def test_windows_share_nothing_after_a_sentence_and_a_name_s_length_elsewhere():
    sentences = "Nothing of this was ever written. " * 40
    assert all(a[1] == b[0] for a, b in pairwise(list(windows(sentences))))
    assert all(sentences[end - 2] == "." for _, end in list(windows(sentences))[:-1])
    flow = "nothing of this was ever written " * 40
    assert all(a[1] - b[0] >= OVERLAP for a, b in pairwise(list(windows(flow))))


@pytest.mark.parametrize("joint", ["Dr. Keller", "Hauptstrasse. 12", "J. Smith", "wrote. keller"])
def test_an_abbreviation_ends_no_sentence(joint):
    text = "x" * (WINDOW - 100) + " " + joint + " x" * WINDOW
    first, second = list(windows(text))[:2]
    assert first[1] - second[0] >= OVERLAP


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("plain", False),
        ("Größe, ﬁne, ａｂ", False),
        ("m² ½ ①② 🙂🙂 ٣٤", False),
        ("5 µm, α β", False),
        ("αβ", True),
        ("ж", True),
        ("日", True),
    ],
)
def test_a_script_that_is_not_latin_is_told(text, expected):
    assert foreign(text) is expected


# -- words ----------------------------------------------------------------------------------------


def words(text: str, **labels: str) -> list[Word]:
    """`text`'s words that have a label, each sure unless its label ends in '?'."""
    found = []
    for value, label in labels.items():
        start = text.index(value)
        probability = 0.4 if label.endswith("?") else 0.95
        found.append(Word(start, start + len(value), label.rstrip("?"), probability))
    return found


SURE, MAYBE = Likelihood.VERY_LIKELY, Likelihood.POSSIBLE
GIVEN, LAST = "GIVEN_NAME", "SURNAME"


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("Anna Keller", {"Anna": GIVEN, "Keller": LAST}, [Span(0, 11, "person", SURE)]),
        ("Anna O'Dea", {"Anna": GIVEN, "O": LAST, "Dea": LAST}, [Span(0, 10, "person", SURE)]),
        ("Anna and Tom", {"Anna": GIVEN, "Tom": "GIVEN_NAME?"}, [(0, 4), (9, 12)]),
        ("Anna, Tom", {"Anna": GIVEN, "Tom": GIVEN}, [(0, 4), (6, 9)]),
        ("in Berlin", {"Berlin": "CITY"}, []),
        ("10115", {"10115": "ZIP_CODE"}, []),
        ("10115 Ulm", {"10115": "ZIP_CODE", "Ulm": "CITY"}, [(0, 9)]),
        ("Weg 5, 10115 Ulm", {"Weg": "STREET_NAME", "5": "BUILDING_NUMBER"}, [(0, 5)]),
        ("Weg", {"Weg": "STREET_NAME"}, [Span(0, 3, "address", Likelihood.UNLIKELY)]),
        (
            "Anna Weg 5",
            {"Anna": GIVEN, "Weg": "STREET_NAME", "5": "BUILDING_NUMBER"},
            [(0, 4), (5, 10)],
        ),
    ],
)
def test_neighbouring_words_of_one_kind_are_one_span(text, labels, expected):
    spans = spans_of(text, words(text, **labels))
    if expected and isinstance(expected[0], Span):
        assert spans == expected
    else:
        assert [(span.start, span.end) for span in spans] == expected


def test_a_span_is_as_likely_as_its_surest_word():
    text = "Anna Keller"
    assert spans_of(text, words(text, Anna="GIVEN_NAME?"))[0].likelihood is MAYBE
    both = words(text, Anna="GIVEN_NAME?", Keller="SURNAME")
    assert spans_of(text, both)[0].likelihood is SURE


@pytest.mark.parametrize(
    ("text", "expected"),
    [("I saw anna", MAYBE), ("i saw anna", SURE), ("user.anna", MAYBE), ("so. anna", SURE)],
)
def test_one_small_word_is_less_likely_a_name_where_a_text_uses_capitals(text, expected):
    assert spans_of(text, words(text, anna=GIVEN))[0].likelihood is expected


def test_of_two_windows_the_surer_one_is_believed():
    found = [Word(5, 9, "CITY", 0.5), Word(5, 9, "SURNAME", 0.9), Word(0, 4, "GIVEN_NAME", 0.3)]
    assert [word.label for word in merged(found)] == ["GIVEN_NAME", "SURNAME"]


# -- the file format ------------------------------------------------------------------------------


def test_what_is_written_can_be_read():
    graph = Writer()
    arrays = {
        "f": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([[-3, 127]], np.int8),
        "l": np.array([3, -1], np.int64),
    }
    for name, array in arrays.items():
        graph.constant(name, array)
    graph.node("Add", ["x", "f"], ["y"])
    nodes, read = read_graph(graph.model())
    assert [(node.kind, node.inputs) for node in nodes] == [("Add", ("x", "f"))]
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and (read[name] == array).all()


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_hold_nothing(data):
    with suppress(ValueError):
        assert read_graph(data) is not None


# -- the labelled set -----------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_labelled_set_is_the_same_every_time_and_marks_what_it_says(language):
    made = list(samples(language))
    assert made == list(samples(language))
    assert sum(len(sample.gold) for sample in made) >= 48
    for sample in made:
        assert "{person}" not in sample.text
        for gold in sample.gold:
            value = sample.text[gold.start : gold.end]
            assert value == value.strip() and value
            assert gold.kind == "person" or any(c.isdigit() for c in value)
