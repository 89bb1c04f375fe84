"""The scanner under attack: work is bounded, and what was not read is never called clean."""

from __future__ import annotations

import base64
import itertools
import time
import tracemalloc
import zlib

import orjson
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Scan
from conductor.detect import views
from conductor.detect.scan import scan_value

AWS = "AKIAIOSFODNN7EXAMPLE"
MARKS = (
    AWS,
    "DE89 3704 0044 0532 0130 00",
    "4111 1111 1111 1111",
    "jane.doe@example.com",
    "password = Tr0ub4dor&3",
    "npm_" + "aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX2",
)


def kinds(value: object) -> set[str]:
    return {finding.detector for finding in scan_value(value).findings}


def ask(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


# -- more text never means less found -----------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.sampled_from(MARKS), json_values, st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_adding_members_never_removes_a_finding(mark: str, extra: object, key: str) -> None:
    body = ask(mark)
    assert kinds(body) <= kinds({**body, "x" + key: extra})
    assert kinds(body) <= kinds({"a" + key: extra, **body})


@given(st.sampled_from(MARKS), st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_adding_text_around_never_removes_a_finding(mark: str, before: str, after: str) -> None:
    assert kinds(ask(mark)) <= kinds(ask(f"{before}\n{mark}\n{after}"))


@given(st.permutations(MARKS))
@settings(max_examples=20, deadline=None)
def test_everything_is_found_at_once_in_any_order(marks: list[str]) -> None:
    assert len(kinds(ask("\n".join(marks)))) == len(MARKS)


@given(json_values)
@settings(max_examples=150, deadline=None)
def test_any_json_can_be_scanned(value: object) -> None:
    assert "detector-error" not in scan_value(value).unscanned


# -- bounded work ---------------------------------------------------------------------------------

HOSTILE = {
    "account numbers that are none": "GB82 ",
    "assignments": "password=",
    "cloud keys that are none": "aws_secret_key = ",
    "addresses": "a@",
    "dots after an address": "a@b.cc.1.",
    "digits": "4",
    "spaced digits": "4 1 1 1 ",
    "backslashes": "\\",
    "escapes": "\\u0041",
    "percent": "%25",
    "entities": "&amp;amp;",
    "entity without an end": "&#",
    "begin": "-----BEGIN PRIVATE KEY-----",
    "urls": "http://a:",
    "words like base64": "Abcdefghijklmnop0 ",
    "lines like base64": "Abcdefghijklmnop0\n",
    "hexadecimal": "4b",
    "dashes": "- ",
    "zero width": "\u200b",
    "ligatures": "\ufdfa",
    "data urls": "data:",
    "data url parameters": "data:a/b;c=d",
    "open objects": '{"a":',
    "open lists": "[",
    "quotes": '"',
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_no_repetition_takes_more_than_linear_time(name: str) -> None:
    piece = HOSTILE[name]

    def seconds(size: int) -> float:
        body = ask(piece * (size // len(piece)))
        start = time.thread_time()
        scan_value(body)
        return time.thread_time() - start

    seconds(1000)
    # Quadratic work would make this about 64 times as long, linear work 8 times.
    assert seconds(240_000) < 30 * seconds(30_000) + 0.05


def test_layers_that_are_not_taken_off_are_unscanned() -> None:
    text = b"A" * 200_000 + AWS.encode()
    for _ in range(8):
        text = base64.b64encode(text)
    scan = scan_value(ask(text.decode()))
    assert (scan.findings, scan.unscanned) == ((), ("decoded-too-deep",))


def test_a_bomb_in_base64_is_unscanned_and_small() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(64 << 20), 9)).decode()
    tracemalloc.start()
    result = scan_value(ask(bomb), max_text_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.unscanned == ("decoded-too-long",)
    assert peak < 32 << 20


def test_deep_nesting_is_read_to_the_bottom() -> None:
    value: object = AWS
    for level in range(100_000):
        value = [value] if level % 2 else {"k": value}
    try:
        assert kinds(value) == {"secret.aws"}
    finally:
        while isinstance(value, list | dict):  # taken apart by hand: the interpreter would recurse
            value = value[0] if isinstance(value, list) else value["k"]


def test_json_in_strings_is_opened_three_deep_and_then_unscanned() -> None:
    hidden = "".join(f"\\u{ord(letter):04x}" for letter in AWS)
    text = f'["{hidden}"]'
    for _ in range(2):
        text = orjson.dumps([text]).decode()
    assert scan_value(ask(text)).unscanned == ()
    assert kinds(ask(text)) == {"secret.aws"}
    for _ in range(3):
        text = orjson.dumps([text]).decode()
    assert "nested-json" in scan_value(ask(text)).unscanned


def test_deep_json_in_a_string_is_no_recursion_error() -> None:
    assert scan_value(ask("[" * 100_000 + "]" * 100_000)).unscanned == ()
    assert scan_value(ask("[" * 1000 + "]" * 1000)).unscanned == ()


def test_a_hundred_thousand_tiny_strings_are_all_read() -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "x": ["b"] * 100_000 + [AWS]}
    assert kinds(body) == {"secret.aws"}


def test_a_long_key_is_not_repeated_for_each_of_its_values() -> None:
    assert scan_value({"k" * 10_000: ["v"] * 10_000}).text_bytes == 20_000


def test_huge_numbers_are_unscanned_rather_than_slow() -> None:
    assert scan_value({"n": 1 << 1_000_000}).unscanned == ("number",)
    assert scan_value({"n": [float("inf"), float("nan"), -1e308, 10**400]}).unscanned == ()


def test_lone_surrogates_hide_nothing() -> None:
    assert kinds(ask("AKIAIOSF\ud800ODNN7EXAMPLE")) == {"secret.aws"}
    assert kinds(ask("AKIAIOSF\\ud800ODNN7EXAMPLE")) == {"secret.aws"}


# -- nothing unread is clean ----------------------------------------------------------------------


def test_text_beyond_the_limit_is_unscanned_and_what_came_before_is_read() -> None:
    result = scan_value({"a": AWS, "b": "x" * 2000, "c": "y"}, max_text_bytes=1000)
    assert result.unscanned == ("too-long",)
    assert [finding.detector for finding in result.findings] == ["secret.aws"]


def test_text_of_exactly_the_limit_is_read() -> None:
    assert scan_value("x" * 1000, max_text_bytes=1000) == Scan((), 1000)
    assert scan_value("é" * 501, max_text_bytes=1000).unscanned == ("too-long",)


def test_more_candidates_than_may_be_judged_are_unscanned() -> None:
    for times, unscanned in ((9, ()), (11, ("too-many-candidates",))):
        body = ask("GB82 WEST 1234 5698 7654 33 " * times)
        assert scan_value(body, max_candidates=10).unscanned == unscanned


@pytest.mark.parametrize("fault", [ValueError, RecursionError, MemoryError, KeyError])
def test_a_failing_detector_makes_the_scan_unscanned(
    monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    def fail(text: bytes, limit: int) -> bytes:
        raise fault("with the secret in it: " + AWS)

    monkeypatch.setattr(views, "decode", fail)
    with structlog.testing.capture_logs() as lines:
        assert scan_value(ask("harmless")).unscanned == ("detector-error",)
    told = {"event": "detector_failed", "error": fault.__name__, "log_level": "error"}
    assert lines == [told]


def test_a_failing_detector_does_not_hide_what_others_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(text: bytes, limit: int) -> bytes:
        raise ValueError

    monkeypatch.setattr(views, "decode", fail)
    assert kinds(ask(AWS)) == {"secret.aws"}


def test_every_pair_of_marks_is_found_together() -> None:
    for one, other in itertools.combinations(MARKS, 2):
        assert len(kinds({"a": one, "b": other})) == 2
