"""A vendor, or a server on this machine, that answers to do harm.

Whatever it says, no word of it stands in an error or in a log, no answer is a failure of ours, and
it takes up no more than its place.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from support.appliance import LOCAL, REMOTE, appliance
from support.configs import local_worker, remote_worker
from support.leaks import logged
from support.wire import CHAT, chat

WORDS = "words-of-the-peer-7f3a"
_LENGTH = re.compile(rb"content-length: (\d+)")


@dataclass
class Peer:
    """Answers every request with the same bytes and hangs up."""

    answer: bytes
    port: int = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Peer]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head.lower())
            await reader.readexactly(int(found[1]) if found else 0)
            writer.write(self.answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def plain(body: str | bytes, status: str = "200 OK", *headers: str) -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    lines = ["Content-Type: application/json", f"Content-Length: {len(raw)}", *headers]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + raw


def stream(*events: str) -> bytes:
    return plain("".join(events)).replace(b"application/json", b"text/event-stream")


def completion(content: object = "fine", choices: int = 1, **message: object) -> str:
    message = {"role": "assistant", "content": content, **message}
    choice = {"message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [{"index": i, **choice} for i in range(choices)]})


def event(value: object) -> str:
    return f"data: {json.dumps(value)}\n\n"


def delta(text: str, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event({"choices": [choice]})


ERROR = json.dumps({"error": {"message": WORDS, "type": WORDS, "param": WORDS, "code": WORDS}})
LENGTHS = json.dumps({"error": {"message": WORDS, "code": "context_length_exceeded",
                                "n_ctx": True, "n_prompt_tokens": -5}})  # fmt: skip
IMAGE = [{"type": "text", "text": WORDS}, {"type": "image_url", "image_url": {"url": WORDS}}]
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
    "too many tool calls": plain(completion(tool_calls=[{"id": "x"}] * 5000)),
    "nothing": b"",
}
STREAMS = {
    "an end and nothing else": stream("data: [DONE]\n\n"),
    "HTML in its midst": stream(delta("a"), f"data: <html>{WORDS}\n\n"),
    "an error in its midst": stream(delta("a"), f"data: {ERROR}\n\n"),
    "no end": stream(delta("a")),
    "words after its end": stream(delta("a", "stop"), "data: [DONE]\n\n", delta(WORDS)),
    "choices without end": stream(*[delta("a").replace('"index": 0', f'"index": {i}')
                                    for i in range(100)]),
    "an endless line": stream("data: " + WORDS * 300_000),
    "a flood of nothing": stream(": x\n" * 300_000),
}  # fmt: skip


async def told(answer: bytes, *, remote: bool, streamed: bool) -> tuple[int, str, str]:
    """Status and text that a client gets, and what is logged, when a lone worker answers so."""
    async with Peer(answer).listening() as peer:
        url = f"http://127.0.0.1:{peer.port}/v1"
        worker = remote_worker(REMOTE, url) if remote else local_worker(LOCAL, port=peer.port)
        with logged() as log:
            async with appliance(workers=[worker]) as box:
                said = await box.http().post(CHAT, json=chat(stream=streamed))
                head = str(said.headers)
                return said.status_code, head + said.text, log.getvalue()


@pytest.mark.parametrize("remote", [True, False], ids=["vendor", "local"])
@pytest.mark.parametrize("name", PLAIN)
async def test_what_is_no_answer_is_told_in_our_words(name: str, remote: bool) -> None:
    status, text, log = await told(PLAIN[name], remote=remote, streamed=False)
    assert status in (400, 502, 503)
    assert WORDS not in text + log
    assert "unhandled" not in log
    assert "True tokens" not in text


@pytest.mark.parametrize("remote", [True, False], ids=["vendor", "local"])
@pytest.mark.parametrize("name", STREAMS)
async def test_what_is_no_stream_never_looks_like_a_whole_one(name: str, remote: bool) -> None:
    status, text, log = await told(STREAMS[name], remote=remote, streamed=True)
    whole = name == "words after its end"
    assert WORDS not in text + log
    assert "unhandled" not in log
    assert status == 200 or not whole
    assert text.endswith("data: [DONE]\n\n") is whole


@pytest.mark.parametrize("remote", [True, False], ids=["vendor", "local"])
async def test_a_peer_writes_no_event_and_no_header_of_ours(remote: bool) -> None:
    evil = "x\n\ndata: [DONE]\n\ndata: {}"
    status, text, _ = await told(
        stream(delta(evil), delta("", "stop"), "data: [DONE]\n\n"), remote=remote, streamed=True
    )
    assert status == 200
    assert text.count("data: [DONE]\n\n") == 1
    headers = ["X-Conductor-Model: evil", f"Set-Cookie: {WORDS}", "x-conductor-failure: permit"]
    status, text, _ = await told(
        plain(completion(), "200 OK", *headers), remote=remote, streamed=False
    )
    assert status == 200
    assert WORDS not in text and "evil" not in text


async def test_no_warning_of_the_vendor_library_quotes_an_answer() -> None:
    with warnings.catch_warnings(record=True) as caught:
        await told(plain(completion(IMAGE)), remote=True, streamed=False)
    assert [str(warning.message) for warning in caught if WORDS in str(warning.message)] == []


async def test_an_answer_made_of_choices_does_not_hold_up_the_others() -> None:
    many = plain(completion(choices=100_000))
    began = time.process_time()
    status, _, _ = await told(many, remote=True, streamed=False)
    assert status == 502
    assert time.process_time() - began < 15  # through the library: half a minute each time
