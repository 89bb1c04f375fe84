"""Where things stand: exact places, whole things, and a word when there is more than can be cut."""

from __future__ import annotations

import base64
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Likelihood
from conductor.detect.profile import DEFAULT_PROFILE, Custom, Profile
from conductor.detect.scan import Scanner, scan_spans
from conductor.detect.spans import Span, Spans, sought, united

EVERY = frozenset({"email", "iban", "secret", "payment_card"})
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = (
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n"
    "q8w3zr5t1m9x\n-----END PRIVATE KEY-----"
)
THINGS = [
    ("jane.doe@example.com", "email"),
    ("GB82 WEST 1234 5698 7654 32", "iban"),
    ("4111 1111 1111 1111", "payment_card"),
    ("AKIAIOSFODNN7EXAMPLE", "secret.aws"),
    (JWT, "secret.token"),
    (PEM, "secret.private_key"),
]


def cut(text: str, types: frozenset[str] = EVERY, profile: Profile = DEFAULT_PROFILE) -> list[str]:
    spans = scan_spans([text], types, profile)
    assert (spans.complete, spans.hidden) == (True, False)
    return [text[span.start : span.end] for span in spans.per_text[0]]


@pytest.mark.parametrize(("thing", "detector"), THINGS)
def test_a_span_covers_the_whole_thing_and_nothing_else(thing: str, detector: str) -> None:
    text = f"Ünter uns: {thing} 💶 is it, já"
    (span,) = scan_spans([text], EVERY, DEFAULT_PROFILE).per_text[0]
    assert (text[span.start : span.end], span.detector) == (thing, detector)


def test_only_what_was_asked_for_is_given() -> None:
    text = "jane@example.com, AKIAIOSFODNN7EXAMPLE"
    assert cut(text, frozenset({"email"})) == ["jane@example.com"]
    assert cut(text, frozenset({"secret"})) == ["AKIAIOSFODNN7EXAMPLE"]


def test_a_password_is_cut_out_to_its_end() -> None:
    value = "Tr0ub4dor&3" * 20
    assert cut(f"password = {value} and on") == [value]


def test_detectors_of_the_policy_have_spans_too() -> None:
    profile = Profile((Custom("custom.p", words=("Grüne Möwe",)),))
    assert cut("die grüne  Möwe fliegt", frozenset({"custom.p"}), profile) == ["grüne  Möwe"]


@pytest.mark.parametrize(
    "texts",
    [
        [base64.b64encode(b"mail jane@example.com now").decode()],
        ["full width: ｊａｎｅ@ｅｘａｍｐｌｅ.ｃｏｍ"],
        ["plain bob@example.org", "and b\u200bob\u200b@exa\u200bmple.org"],
        ["AKIAIOSFO", "DNN7EXAMPLE"],
    ],
)
def test_what_hides_behind_a_disguise_or_over_texts_is_said_to_be_hidden(texts: list[str]) -> None:
    assert scan_spans(texts, EVERY, DEFAULT_PROFILE).hidden


def test_hidden_things_of_other_kinds_do_not_matter() -> None:
    text = base64.b64encode(b"mail jane@example.com now").decode()
    assert not scan_spans([text], frozenset({"iban"}), DEFAULT_PROFILE).hidden


def test_names_without_the_model_leave_the_spans_incomplete() -> None:
    assert not scan_spans(["Anna Bianchi"], frozenset({"person"}), DEFAULT_PROFILE).complete


def test_a_fault_leaves_the_spans_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    from conductor.detect import cutting

    def fail(texts: object) -> None:
        raise ValueError

    monkeypatch.setattr(cutting, "united", fail)
    assert scan_spans(["a", "b"], EVERY, DEFAULT_PROFILE) == Spans(((), ()), complete=False)


spans_of_a_text = st.lists(
    st.builds(
        lambda start, size, name: Span(start, start + size, name),
        st.integers(0, 40),
        st.integers(1, 20),
        st.sampled_from(["a", "b"]),
    )
)


@given(spans_of_a_text)
def test_united_spans_cover_the_same_and_never_overlap(spans: list[Span]) -> None:
    merged = united(spans)
    covered = {i for span in spans for i in range(span.start, span.end)}
    assert {i for span in merged for i in range(span.start, span.end)} == covered
    assert all(one.end <= other.start for one, other in itertools.pairwise(merged))


@given(st.text(max_size=40), st.sampled_from(THINGS), st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_cutting_leaves_nothing_unless_it_says_so(
    before: str, thing: tuple[str, str], after: str
) -> None:
    text = f"{before}\n{thing[0]}\n{after}"
    spans = scan_spans([text], EVERY, DEFAULT_PROFILE)
    if spans.complete and not spans.hidden:
        left = text
        for span in reversed(spans.per_text[0]):
            left = left[: span.start] + "\ufffc" + left[span.end :]
        assert thing[0] not in left


def test_a_kind_is_asked_for_by_its_id_or_its_beginning() -> None:
    assert sought("secret.aws", {"secret"})
    assert sought("iban", {"iban"})
    assert not sought("secretary", {"secret"})


async def test_long_texts_are_cut_outside_as_short_ones_are_inside() -> None:
    scanner = Scanner(inline_bytes=1 << 30)
    outside = Scanner(inline_bytes=0, timeout_s=60.0)
    texts = ["mail jane@example.com", "é and GB82 WEST 1234 5698 7654 32."]
    inside = await scanner.spans(texts, EVERY)
    assert (await outside.spans(texts, EVERY)) == Spans(((), ()), complete=False)
    await outside.start()
    try:
        assert await outside.spans(texts, EVERY) == inside
        assert [span.likelihood for span in inside.per_text[0]] == [Likelihood.VERY_LIKELY]
        assert not (await outside.spans(["\ud800"], EVERY)).complete
        assert not (await outside.spans(texts, frozenset({"person"}))).complete
    finally:
        await outside.close()
