"""Framing without sockets: server-sent events, and what a refusal means."""

from __future__ import annotations

import time
from email.utils import formatdate
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Failure
from conductor.workers.failures import in_band, refusal
from conductor.workers.sse import EventDecoder, EventTooLarge

# -- server-sent events -----------------------------------------------------------------------

PAYLOADS = ['{"a":"日本語"}', '{"b":"🦊👩‍👩‍👧"}', '{"c":"é\\n"}', "[DONE]"]
MIXED = (
    ": keep-alive\n\n"
    f"data: {PAYLOADS[0]}\n\n"
    f"event: x\r\ndata:{PAYLOADS[1]}\r\n\r\n"
    f"id: 7\ndata: {PAYLOADS[2]}\r\n\n"
    ": more\r\n"
    f"\n\ndata: {PAYLOADS[3]}\n\r\n"
).encode()
EVENTS = [payload.encode() for payload in PAYLOADS]


def feed_all(pieces: list[bytes]) -> list[bytes]:
    decoder = EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(MIXED)])
def test_events_are_the_same_however_large_the_pieces(size):
    assert feed_all([MIXED[i : i + size] for i in range(0, len(MIXED), size)]) == EVENTS


def test_events_are_the_same_for_every_split_in_two():
    for at in range(len(MIXED) + 1):
        assert feed_all([MIXED[:at], MIXED[at:]]) == EVENTS


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))),
    st.lists(st.integers(0, 2000)),
)
def test_events_are_the_same_for_every_text_and_every_split(texts, cuts):
    stream = b"".join(f"data: {text}\n\n".encode() for text in texts)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert feed_all(pieces) == [text.encode() for text in texts]


def test_an_event_of_several_data_lines_is_joined_by_line_breaks():
    assert feed_all([b"data: a\ndata\ndata:  b\n\n"]) == [b"a\n\n b"]


def test_an_event_without_its_blank_line_is_none():
    assert feed_all([b"data: a\n\ndata: b\n"]) == [b"a"]


@pytest.mark.parametrize("line", [b"data: " + b"x" * 101, b": " + b"x" * 101, b"data: x\n" * 15])
def test_an_event_without_an_end_is_refused(line):
    decoder = EventDecoder(max_event_bytes=100)
    with pytest.raises(EventTooLarge):
        decoder.feed(line)


def test_any_number_of_small_events_and_comments_stays_within_the_bound():
    decoder = EventDecoder(max_event_bytes=100)
    assert len(decoder.feed(b": c\r\n: d\r\ndata: x\r\n\r\n" * 1000)) == 1000
    assert decoder.feed(b": comment\r\n" * 1000) == []


# -- refusals ---------------------------------------------------------------------------------

OVERFLOWS = [
    # llama.cpp, as it was and as it is
    (500, '{"error":{"message":"the request exceeds the available context size. try"}}', None),
    (
        400,
        '{"error":{"type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}',
        (8, 9),
    ),
    # vLLM: nested, flat, and two generations of the text
    (
        400,
        '{"error":{"type":"BadRequestError","code":400,"message":"This model\'s maximum context '
        "length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages, 100 in "
        'the completion)."}}',
        (4096, 5000),
    ),
    (
        400,
        '{"object":"error","message":"This model\'s maximum context length is 8192 tokens. '
        'However, your request has 9001 input tokens."}',
        (8192, 9001),
    ),
    # OpenAI
    (400, '{"error":{"code":"context_length_exceeded","message":"too long"}}', None),
    # SGLang
    (
        400,
        '{"message":"The input (70000 tokens) is longer than the model\'s context length (32768 '
        'tokens)."}',
        (32768, 70000),
    ),
    # TensorRT-LLM
    (400, '{"detail":"The sum of prompt length (9) should not exceed max_num_tokens (8)"}', None),
    (413, '{"error":"prompt is too long"}', None),
]


@pytest.mark.parametrize(("status", "body", "window"), OVERFLOWS)
def test_every_back_end_s_word_for_a_full_context_is_understood(status, body, window):
    error = refusal(status, {}, body.encode())
    assert (error.failure, error.window) == (Failure.CONTEXT_LENGTH, window)


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (429, "{}", Failure.RATE_LIMITED),
        (401, "{}", Failure.AUTH),
        (403, "no", Failure.AUTH),
        (400, "{}", Failure.BAD_REQUEST),
        (422, '{"detail":[{"loc":["body"]}]}', Failure.BAD_REQUEST),
        (413, "<html>", Failure.BAD_REQUEST),
        (404, '{"error":"model not found"}', Failure.SERVER_ERROR),
        (405, "", Failure.SERVER_ERROR),
        (500, "\xff", Failure.SERVER_ERROR),
        (502, "[]", Failure.SERVER_ERROR),
        (503, '{"error":{"message":"Loading model","type":"unavailable_error"}}', Failure.LOADING),
        (503, "Model is starting", Failure.LOADING),
        (503, '{"error":"server busy, please try again"}', Failure.OVERLOADED),
        (503, "", Failure.OVERLOADED),
        (529, "", Failure.OVERLOADED),
        (500, '{"error":{"message":"image input is not supported"}}', Failure.BAD_REQUEST),
        (302, "", Failure.MALFORMED),
        (206, "", Failure.MALFORMED),
        (400, '{"error":' * 2000, Failure.BAD_REQUEST),
        (400, "null", Failure.BAD_REQUEST),
        (400, '{"error":{"message":{"context length":1}}}', Failure.BAD_REQUEST),
    ],
)
def test_every_other_refusal_has_its_failure(status, body, failure):
    assert refusal(status, {}, body.encode("latin-1")).failure is failure


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("7", 7.0), ("0", 0.0), ("1.5", 1.5), ("999999999", 86400.0)),
        *(("-1", None), ("nan", None), ("1e9", None), ("soon", None), ("", None)),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 99 Jan 1970 99:00:00 GMT", None),
    ],
)
def test_a_stated_wait_is_read_and_bounded(text, seconds):
    assert refusal(429, {"retry-after": text}, b"").retry_after_s == seconds


def test_a_stated_wait_may_be_a_date():
    found = refusal(429, {"retry-after": formatdate(time.time() + 60, usegmt=True)}, b"")
    assert found.retry_after_s is not None and 50 < found.retry_after_s <= 60


def test_egress_names_the_failure_and_its_reason_must_be_a_word():
    headers = {"x-conductor-failure": "rate_limited", "x-conductor-reason": "a b\nsecret"}
    error = refusal(502, {**headers, "retry-after": "3"}, b"", egress=True)
    assert (error.failure, error.detail, error.retry_after_s) == (
        Failure.RATE_LIMITED,
        "status 502",
        3.0,
    )
    unknown = refusal(502, {"x-conductor-failure": "nonsense"}, b"", egress=True)
    assert unknown.failure is Failure.SERVER_ERROR


@pytest.mark.parametrize(
    ("error", "egress", "failure"),
    [
        ({"code": 400, "message": "maximum context length"}, False, Failure.CONTEXT_LENGTH),
        ({"code": 429}, False, Failure.RATE_LIMITED),
        ({"code": "400"}, False, Failure.SERVER_ERROR),
        ({"code": 200}, False, Failure.SERVER_ERROR),
        ({"failure": "cut"}, True, Failure.CUT),
        ({"failure": "cut"}, False, Failure.SERVER_ERROR),
        ({"failure": ["cut"]}, True, Failure.SERVER_ERROR),
        ("a string", False, Failure.SERVER_ERROR),
        ([1], False, Failure.SERVER_ERROR),
        (True, False, Failure.SERVER_ERROR),
    ],
)
def test_an_error_within_a_stream_has_its_failure(error, egress, failure):
    found = in_band(error, began=True, egress=egress)
    assert (found.failure, found.began) == (failure, True)
