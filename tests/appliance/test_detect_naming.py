"""Names in a scan: what is put before the model, and what is said when it could not read all."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from conductor.core import Likelihood
from conductor.detect.naming import Names
from conductor.detect.profile import Profile
from conductor.detect.scan import Scanner, scan_spans, scan_value
from conductor.detect.spans import Span

NAMED = Profile(names=True)


class Finder:
    """Knows one name, and reads Latin letters alone."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def read(self, text: str, deadline: float | None = None) -> Any:
        self.texts.append(text)
        spans = tuple(Span(*m.span(), "person") for m in re.finditer("Anna Bianchi", text))
        late = deadline is not None and time.monotonic() >= deadline
        return SimpleNamespace(spans=spans, complete=text.isascii() and not late)


def names(finder: Finder, deadline: float | None = None) -> Names:
    return Names(finder, deadline)  # type: ignore[arg-type]


def ask(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}, {"role": "user", "content": "ok"}]}


def test_a_person_is_a_finding() -> None:
    scan = scan_value(ask("I met Anna Bianchi."), profile=NAMED, names=names(Finder()))
    (finding,) = scan.findings
    assert (finding.detector, finding.likelihood) == ("person", Likelihood.VERY_LIKELY)
    assert scan.unscanned == ()


def test_names_are_sought_where_text_was_encoded() -> None:
    encoded = "SSBtZXQgQW5uYSBCaWFuY2hpIHRvZGF5Lg=="
    scan = scan_value(ask(encoded), profile=NAMED, names=names(Finder()))
    assert [finding.detector for finding in scan.findings] == ["person"]


def test_without_the_model_a_policy_about_names_has_nothing_scanned() -> None:
    assert scan_value(ask("hello"), profile=NAMED).unscanned == ("names-missing",)


def test_what_the_model_cannot_read_is_unscanned() -> None:
    scan = scan_value(ask("Привет"), profile=NAMED, names=names(Finder()))
    assert scan.unscanned == ("names-script",)
    late = names(Finder(), time.monotonic() - 1)
    assert scan_value(ask("hello"), profile=NAMED, names=late).unscanned == ("names-timeout",)


def test_long_texts_are_read_alone_and_short_ones_together() -> None:
    finder = Finder()
    body = {"tags": ["a b c"] * 30, "content": "x" * 300}
    scan_value(body, profile=NAMED, names=names(finder))
    assert "content: " + "x" * 300 in finder.texts
    assert len(finder.texts) < 6


def test_spans_of_persons_come_from_the_model() -> None:
    spans = scan_spans(["Anna Bianchi, a@b.com"], frozenset({"person"}), NAMED, names(Finder()))
    assert (spans.per_text, spans.complete) == (((Span(0, 12, "person"),),), True)


async def test_the_scanner_leaves_names_to_its_processes() -> None:
    scanner = Scanner(timeout_s=60.0, names_model=Path("/nonexistent"))
    assert (await scanner.scan({"a": "hi"}, profile=NAMED)).unscanned == ("scanner-down",)
    await scanner.start()
    try:
        assert (await scanner.scan({"a": "hi"}, profile=NAMED)).unscanned == ("names-missing",)
        assert (await scanner.scan({"a": "hi"})).unscanned == ()
    finally:
        await scanner.close()
