"""A vendor, or a server on this machine, that answers to do harm.

Whatever it says, no word of it stands in an error or in a log, no answer is a failure of ours, and
it takes up no more than its place.
"""

from __future__ import annotations

import gzip
import json
import warnings

import pytest

from support.hostile import ERROR, WORDS, completion, plain, told

LENGTHS = json.dumps({"error": {"message": WORDS, "code": "context_length_exceeded",
                                "n_ctx": True, "n_prompt_tokens": -5}})  # fmt: skip
IMAGE = [{"type": "text", "text": WORDS}, {"type": "image_url", "image_url": {"url": WORDS}}]
CALLS = [
    {"id": f"c{i}", "type": "function", "function": {"name": f"f{i}", "arguments": "{}"}}
    for i in range(5000)
]
PLAIN = {
    "a redirect": plain("", "302 Found", f"Location: http://127.0.0.1:9/{WORDS}"),
    "a page of HTML": plain(f"<html>{WORDS}</html>", f"500 {WORDS}"),
    "an error in JSON": plain(ERROR, "400 Bad Request"),
    "lengths that are none": plain(LENGTHS, "400 Bad Request"),
    "a wait that is none": plain(ERROR, "429 Too Many Requests", f"Retry-After: {WORDS}"),
    "an error with status 200": plain(ERROR),
    "compressed": plain(gzip.compress(bytes(50 << 20)), "200 OK", "Content-Encoding: gzip"),
    "two lengths": plain(completion(), "200 OK", "Content-Length: 3"),
    "a length too long": plain(completion()).replace(b"Length: ", b"Length: 9"),
    "an unknown status": plain(ERROR, "999 What"),
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "no HTTP": bytes(range(256)) * 40,
    "a head without an end": b"HTTP/1.1 200 OK\r\nX: " + WORDS.encode() * 10_000,
    "a hundred thousand levels": plain("[" * 100_000),
    "half a character": plain(completion().replace("fine", "\\ud800")),
    "five thousand choices": plain(completion(choices=5000)),
    "too many tool calls": plain(completion(tool_calls=CALLS)),
    "nothing": b"",
}


@pytest.mark.parametrize("remote", [True, False], ids=["vendor", "local"])
@pytest.mark.parametrize("name", PLAIN)
async def test_what_is_no_answer_is_told_in_our_words(name: str, remote: bool) -> None:
    status, text, log = await told(PLAIN[name], remote=remote, streamed=False)
    assert status in (400, 502, 503)
    assert WORDS not in text + log
    assert "unhandled" not in log
    assert "True tokens" not in text


async def test_no_warning_of_the_vendor_library_quotes_an_answer() -> None:
    with warnings.catch_warnings(record=True) as caught:
        await told(plain(completion(IMAGE)), remote=True, streamed=False)
    assert [str(warning.message) for warning in caught if WORDS in str(warning.message)] == []


@pytest.mark.parametrize("name", ["five thousand choices", "too many tool calls"])
async def test_the_vendor_library_is_not_given_more_than_it_can_read_in_time(name: str) -> None:
    _, _, log = await told(PLAIN[name], remote=True, streamed=False)
    assert "more than was asked for" in log
