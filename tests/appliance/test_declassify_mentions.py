"""What one text gives away is found in all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.declassify.mentions import with_mentions
from conductor.detect.spans import Span


def mentioned(value: str, text: str, detector: str = "person") -> list[str]:
    """What of `text` is taken for a mention of `value`."""
    (_, found) = with_mentions([value, text], [[Span(0, len(value), detector)], []])
    assert {span.detector for span in found} <= {detector, "custom"}
    return [text[span.start : span.end] for span in found]


@pytest.mark.parametrize(
    ("value", "text", "mentions"),
    [
        ("Anna Rossi", "é日 Anna Rossi, ANNA\n ROSSI", ["Anna Rossi", "ANNA\n ROSSI"]),
        ("Anna Rossi", "anna-rossi and Anna\u00a0Rossi", ["anna-rossi", "Anna\u00a0Rossi"]),
        ("Anna Rossi", "Annarossi, Annalisa Rossini, anna rossie", []),
        ("Anna Rossi", "Rossi, and Anna; rossi, Annarossi", ["Rossi", "Anna"]),
        ("Will", "will WILL Will", ["WILL", "Will"]),
        ("bluebird", "Bluebird bluebird", ["Bluebird", "bluebird"]),
        ("Al", "Al is short", []),
        ("a.b*(c", "a.b*(c axb*(c", ["a.b*(c"]),
        ("E123456", "E123456, E1234567, 123456", ["E123456"]),
        ("Łukasz Żak", "łukasz żak", ["łukasz żak"]),
        (" - ", "a - b", []),
    ],
)
def test_mentions_differ_by_case_and_space_alone(
    value: str, text: str, mentions: list[str]
) -> None:
    assert mentioned(value, text) == mentions


def test_values_known_from_before_are_sought_too() -> None:
    ((found,),) = (with_mentions(["ask Anna"], [[]], {"Anna": "person"}),)
    assert found == [Span(4, 8, "person")]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4), st.data())
def test_no_span_is_lost_and_every_one_lies_in_its_text(
    texts: list[str], data: st.DataObject
) -> None:
    ends = st.integers(-1, 31)
    spans = st.builds(Span, ends, ends, st.just("person")).filter(lambda s: s.start < s.end)
    found = [data.draw(st.lists(spans, max_size=3)) for _ in texts]
    for text, before, after in zip(texts, found, with_mentions(texts, found), strict=True):
        assert after[: len(before)] == before
        assert all(0 <= one.start < one.end <= len(text) for one in after[len(before) :])


def test_a_great_many_values_are_bounded() -> None:
    known = {f"Name{number} Surname{number}": "person" for number in range(5_000)}
    (found,) = with_mentions(["Name7 Surname7 and Name4999 Surname4999"], [[]], known)
    assert [(span.start, span.end) for span in found] == [(0, 14)]
