"""Cutting out for good, and whether anything was left: judged by the real scan."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Finding, Likelihood, Scan
from conductor.declassify.kinds import KINDS
from conductor.declassify.pseudonyms import Pseudonyms
from conductor.declassify.redact import marker, redact, redact_all
from conductor.declassify.residue import lowered, residue
from conductor.declassify.tokens import ALPHABET, token
from conductor.detect.scan import DETECTORS, scan_value
from conductor.detect.spans import Span
from conductor.labels import Label
from conductor.policy.declassifiers import Declassifier, Removes

PII = Label(2, frozenset({"pii", "health"}))
KEY = bytes(32)
VALUES = {
    "iban": "IT60X0542811101000000123456",
    "payment_card": "4111 1111 1111 1111",
    "email": "anna.rossi@example.org",
    "secret.aws": "AKIAQ3EGRWZX7YT4KDPL",
    "secret.generic": "Tr0ub4dor&3x7",
}
FRAMES = (
    "{}",
    "use {} now",
    "iban: {}",
    "password={}",
    "export TOKEN={}",
    "{}\n{}",
    '["{}"]',
    "postgres://app:{}@db/x",
)
spans = st.builds(
    Span, st.integers(-2, 40), st.integers(-2, 40), st.sampled_from(["person", "email"])
).filter(lambda span: span.start < span.end)


def everywhere(text: str, detector: str) -> list[Span]:
    value = re.escape(VALUES[detector])
    return [Span(*match.span(), detector) for match in re.finditer(value, text)]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("detector", VALUES)
def test_a_scan_of_what_was_cut_is_clean(detector: str, frame: str) -> None:
    text = frame.replace("{}", VALUES[detector])
    found = everywhere(text, detector)
    assert found
    pseudonyms = Pseudonyms(KEY)
    hidden = pseudonyms.mask(text, found, PII)
    assert VALUES[detector] not in hidden
    for output in (redact(text, found), pseudonyms.as_redacted(hidden)):
        assert VALUES[detector] not in output
        assert residue(scan_value({"content": output}), DETECTORS).clean, output


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_markers_are_nothing_to_any_detector(kind: str, frame: str) -> None:
    scan = scan_value({"content": frame.replace("{}", marker(kind))})
    assert not scan.findings
    assert not scan.unscanned


@pytest.mark.parametrize("frame", FRAMES[:-1])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_tokens_are_nothing_to_any_rule_but_that_for_urls(kind: str, frame: str) -> None:
    bodies = [f"{kind}:{(ALPHABET * 2)[at : at + 6]}" for at in range(len(ALPHABET))]
    for written in (" ".join(map(token, bodies)), *map(token, bodies)):
        scan = scan_value({"content": frame.replace("{}", written)})
        assert not scan.findings, (written, scan.findings)
        assert not scan.unscanned


@given(st.text("abcé-.", max_size=40), st.lists(spans, max_size=5))
def test_nothing_of_a_span_is_left_and_everything_else_is(text: str, found: list[Span]) -> None:
    cut = redact(text, found)
    covered = {place for span in found for place in range(max(0, span.start), span.end)}
    rest = "".join(letter for place, letter in enumerate(text) if place not in covered)
    assert re.sub(r"\[[a-z]+ removed\]", "", cut) == rest


@given(st.text("ab é-.\n", max_size=40), st.lists(spans, max_size=5))
def test_a_masked_text_is_judged_as_if_it_had_been_redacted(text: str, found: list[Span]) -> None:
    pseudonyms = Pseudonyms(KEY)
    assert pseudonyms.as_redacted(pseudonyms.mask(text, found, PII)) == redact(text, found)


def test_tokens_of_others_are_judged_as_they_stand() -> None:
    other, mine = Pseudonyms(), Pseudonyms()
    hidden = other.mask("Anna", [Span(0, 4, "person")], PII)
    assert mine.as_redacted(hidden) == hidden
    changed = hidden.replace("P", "p")
    assert other.as_redacted(changed) == changed


def test_what_one_text_gives_away_is_cut_out_of_all() -> None:
    texts = ["Dear Anna Rossi,", "cc: anna rossi; Annarossi"]
    assert redact_all(texts, [[Span(5, 15, "person")], []]) == [
        "Dear [person removed],",
        "cc: [person removed]; Annarossi",
    ]


def test_overlapping_spans_are_cut_as_one_under_the_name_of_the_longest() -> None:
    text = "mail anna@example.org now"
    found = [Span(5, 9, "person"), Span(5, 21, "email"), Span(14, 21, "custom.sites")]
    assert redact(text, found) == "mail [email removed] now"


def test_spaces_at_the_ends_of_a_span_stay() -> None:
    assert redact("to Anna  and", [Span(2, 9, "person")]) == "to [person removed]  and"


def scan(detector: str = "email", likelihood: Likelihood = Likelihood.LIKELY) -> Scan:
    return Scan((Finding(detector, 1, likelihood=likelihood),), 10)


@pytest.mark.parametrize(
    ("scan", "types", "whole", "clean"),
    [
        (Scan((), 10), {"email"}, True, True),
        (Scan((), 10), {"email"}, False, False),
        (Scan((), 10, ("timeout",)), {"email"}, True, False),
        (scan(), {"email"}, True, False),
        (scan(), {"iban"}, True, True),
        (scan("secret.aws"), {"secret"}, True, False),
        (scan("secret.aws"), {"secret.token"}, True, True),
        (scan("secretary"), {"secret"}, True, True),
        (scan(likelihood=Likelihood.POSSIBLE), {"email"}, True, False),
        (scan(likelihood=Likelihood.UNLIKELY), {"email"}, True, True),
    ],
)
def test_residue_is_whatever_of_the_types_is_at_least_possible(
    scan: Scan, types: set[str], whole: bool, clean: bool
) -> None:
    assert residue(scan, types, whole=whole).clean is clean


@pytest.mark.parametrize(
    ("clean", "removes", "label"),
    [
        (True, Removes(frozenset({"pii"})), Label(2, frozenset({"health"}))),
        (True, Removes(frozenset({"pii"}), 1), Label(1, frozenset({"health"}))),
        (True, Removes(frozenset(), 3), PII),
        (False, Removes(frozenset({"pii", "health"}), 0), PII),
    ],
)
def test_a_label_is_lowered_only_when_nothing_is_left(
    clean: bool, removes: Removes, label: Label
) -> None:
    declassifier = Declassifier("redact-v1", "redact", removes, "policy.yaml:1:1")
    assert lowered(PII, declassifier, clean) == label
