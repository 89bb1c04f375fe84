"""Request bodies: how large, how framed, how hostile; whatever comes, the answer is no 500."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor.api.bodies import parsed
from conductor.chat.fields import _CHECKS
from conductor.errors import BadRequest
from support.appliance import Box, appliance, until
from support.configs import KEY, local_worker
from support.soon import SOON_S
from support.wire import CHAT, chat, exchange, head, is_envelope

FREE = [local_worker("local-a", port=0, model="echo")]
SMALL = {"api": {"max_body_bytes": 65_536, "max_in_flight_body_bytes": 131_072}}
MIB = 1 << 20


def body_of(size: int) -> bytes:
    """A chat request of exactly so many bytes."""
    frame = orjson.dumps(chat(messages=[{"role": "user", "content": ""}]))
    return frame.replace(b'"content":""', b'"content":"' + b"x" * (size - len(frame)) + b'"')


async def chunked(data: bytes) -> Any:
    for start in range(0, len(data), MIB):
        yield data[start : start + MIB]


# -- size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False])
async def test_32_mebibytes_are_accepted_and_reach_a_worker_with_the_room(declared: bool) -> None:
    text = "Lorem ipsum dolor sit amet. " * (32 * MIB // 28)
    frame = orjson.dumps(chat(messages=[{"role": "user", "content": ""}]))
    content = text[: 32 * MIB - len(frame)]
    body = orjson.dumps(chat(messages=[{"role": "user", "content": content}]))
    assert len(body) == 32 * MIB
    roomy = [
        local_worker("local-a", port=0, model="ok", limits={"context_tokens": 9_000_000}),
        local_worker("local-b", port=0, model="ok"),
    ]
    async with appliance(workers=roomy, appliance={"limits": {"max_tokens": 20_000_000}}) as box:
        http = box.http()
        response = await http.post(CHAT, content=body if declared else chunked(body))
        assert response.status_code == 200, response.text
        assert response.headers["x-conductor-model"] == "local-a"
        assert orjson.loads(box.local.requests[0].body)["messages"][0]["content"] == content


async def test_what_no_window_can_hold_is_refused_before_a_worker_is_kept_busy() -> None:
    async with appliance(workers=FREE) as box:
        response = await box.http().post(CHAT, content=body_of(MIB))
        assert is_envelope(response, 400, "context_length_exceeded")
        assert "maximum context length is 8192 tokens" in response.json()["error"]["message"]
        assert box.local.requests == []


async def test_the_limit_is_exact_for_declared_and_chunked_bodies() -> None:
    async with appliance(workers=FREE, appliance=SMALL) as box:
        http = box.http()
        for size, status in ((65_536, 200), (65_537, 413)):
            body = body_of(size)
            assert len(body) == size
            for content in (body, chunked(body)):
                response = await http.post(CHAT, content=content)
                assert response.status_code == status, response.text
                if status == 413:
                    assert is_envelope(response, 413, "request_too_large")
                    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_a_body_beyond_the_limit_is_refused_before_it_is_sent() -> None:
    async with appliance(workers=FREE) as box:
        received = await exchange(box, head(CHAT, f"Content-Length: {32 * MIB + 1}"))
        assert received.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"request_too_large"' in received


async def test_an_endless_chunked_body_is_refused_once_it_is_too_large() -> None:
    async with appliance(workers=FREE, appliance=SMALL) as box:
        piece = b"%x\r\n%b\r\n" % (16_384, b"x" * 16_384)
        received = await exchange(box, head(CHAT, "Transfer-Encoding: chunked"), *[piece] * 6)
        assert received.startswith(b"HTTP/1.1 413 "), received


async def test_a_key_is_asked_for_before_a_body_is_read() -> None:
    async with appliance(workers=FREE) as box:
        received = await exchange(box, head(CHAT, f"Content-Length: {MIB}", key="wrong"))
        assert received.startswith(b"HTTP/1.1 401 ")


async def test_large_bodies_that_do_not_fit_together_are_sent_away_for_a_moment() -> None:
    slow = [local_worker("local-a", port=0, model="stall")]
    async with appliance(workers=slow, appliance=SMALL) as box:
        http = box.http()
        waiting = [asyncio.create_task(http.post(CHAT, content=body_of(60_000))) for _ in "ab"]
        await until(lambda: len(box.local.requests) == 2)
        refused = await http.post(CHAT, content=body_of(60_000))
        assert is_envelope(refused, 503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until(lambda: box.server.door.inside == 0)
        assert (await http.post("/v1/plan", content=body_of(60_000))).status_code == 200


async def test_a_small_chunked_body_holds_no_more_room_than_it_needs() -> None:
    slow = [local_worker("local-a", port=0, model="slow-first-byte-300")]
    async with appliance(workers=slow, appliance=SMALL) as box:
        http = box.http()

        async def ask() -> int:
            return (await http.post(CHAT, content=chunked(body_of(200)))).status_code

        first = [asyncio.create_task(ask()) for _ in range(2)]
        await until(lambda: len(box.local.requests) == 2)
        assert await asyncio.gather(ask(), *first) == [200, 200, 200]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP, identity", "x"])
async def test_a_compressed_body_is_refused_and_never_unpacked(encoding: str) -> None:
    plain = body_of(MIB)
    packed = zlib.compress(plain) if encoding == "deflate" else gzip.compress(plain)
    async with appliance(workers=FREE, appliance=SMALL) as box:
        headers = {"Content-Encoding": encoding}
        for path in (CHAT, "/v1/plan"):
            response = await box.http().post(path, content=packed, headers=headers)
            assert is_envelope(response, 400, None)
            assert "compressed" in response.json()["error"]["message"]
        kept = await box.http().post(
            CHAT, content=body_of(200), headers={"Content-Encoding": "identity"}
        )
        assert kept.status_code == 200


async def test_a_sender_that_stops_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conductor.api.bodies.READ_S", 0.2)
    async with appliance(workers=FREE) as box:
        received = await exchange(box, head(CHAT, "Content-Length: 100") + b"{")
        assert received.startswith(b"HTTP/1.1 400 ")
        assert b"did not arrive within 0.2 s" in received


# -- one appliance for many hostile bodies ------------------------------------------------------


class Running:
    """An appliance in a thread of its own, and a plain client of it."""

    def __init__(self) -> None:
        self.box: Box | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(SOON_S)
        assert self.box is not None
        headers = {"Authorization": f"Bearer {KEY}"}
        self.http = httpx.Client(base_url=self.box.url, headers=headers, timeout=SOON_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            async with appliance() as self.box:
                self._ready.set()
                await self._stop.wait()
        finally:
            self._ready.set()

    def close(self) -> None:
        self.http.close()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SOON_S)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.close()


def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    return b'{"model":"conductor","messages":' + (opening * levels + closing * levels).encode()


HELLO = b'[{"role":"user","content":"hello"}]'
GOOD = b'{"model":"conductor","messages":' + HELLO + b"}"


def with_field(text: bytes) -> bytes:
    return GOOD[:-1] + b"," + text + b"}"


BAD = {
    "empty": b"",
    "blank": b" \r\n\t ",
    "null": b"null",
    "a list": b"[" + GOOD + b"]",
    "a string": b'"' + b"x" * 100 + b'"',
    "a number": b"1",
    "cut": GOOD[:-1],
    "cut in a string": GOOD[:-8],
    "two objects": GOOD + GOOD,
    "form data": b"model=conductor&messages=x",
    "trailing comma": GOOD[:-1] + b",}",
    "comment": b"/* x */" + GOOD,
    "single quotes": GOOD.replace(b'"', b"'"),
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "UTF-16 little endian": GOOD.decode().encode("utf-16"),
    "UTF-16 big endian": GOOD.decode().encode("utf-16-be"),
    "UTF-32": GOOD.decode().encode("utf-32"),
    "Latin-1": GOOD.replace(b"hello", "hél".encode("latin-1")),
    "overlong UTF-8": GOOD.replace(b"hello", b"\xc0\xaf"),
    "encoded surrogate": GOOD.replace(b"hello", b"\xed\xa0\x80"),
    "lone surrogate": GOOD.replace(b"hello", rb"\ud800"),
    "reversed surrogates": GOOD.replace(b"hello", rb"\udc00\ud800"),
    "NUL escape": GOOD.replace(b"hello", rb"a\u0000b"),
    "NUL byte": GOOD.replace(b"hello", b"a\0b"),
    "control character": GOOD.replace(b"hello", b"a\x01b"),
    "bad escape": GOOD.replace(b"hello", rb"\x41"),
    "NaN": with_field(b'"temperature":NaN'),
    "infinity": with_field(b'"temperature":Infinity'),
    "beyond a double": with_field(b'"temperature":1e999'),
    "huge integer": with_field(b'"seed":' + b"9" * 5000),
    "huge unknown integer": with_field(b'"unknown":' + b"9" * 100_000),
    "integer just beyond 64 bits": with_field(b'"unknown":18446744073709551616'),
    "leading zero": with_field(b'"n":01'),
    "two models": with_field(b'"model":"local-a"'),
    "two messages": with_field(b'"messages":' + HELLO),
    "two names deep down": with_field(b'"unknown":{"a":[{"b":1,"\\u0062":2}]}'),
    "100,000 lists": nested(100_000) + b"}",
    "100,000 lists, not closed": nested(100_000, closing=""),
    "100,000 objects": nested(100_000, '{"a":', "}") + b"}",
    "200 lists in an unknown field": with_field(b'"unknown":' + b"[" * 200 + b"]" * 200),
    "200 objects in a schema": with_field(
        b'"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":'
        + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}}"
    ),
    "a million values": with_field(b'"unknown":[' + b"[]," * 1_000_000 + b"1]"),
    "300,000 names": with_field(
        b'"unknown":{' + b",".join(b'"k%d":1' % i for i in range(300_000)) + b"}"
    ),
    "no messages": b'{"model":"conductor","messages":[]}',
    "no model": b'{"messages":' + HELLO + b"}",
    "empty model": GOOD.replace(b'"conductor"', b'""'),
    "model with a line break": GOOD.replace(b"conductor", rb"con\nductor"),
    "address in an image": GOOD.replace(
        b'"hello"',
        b'[{"type":"image_url","image_url":{"url":"http://127.0.0.1:1/x"}}]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_body_is_a_400_in_every_place(name: str, running: Running) -> None:
    assert running.box is not None
    before = len(running.box.local.requests), len(running.box.vendor.requests)
    for path in (CHAT, "/v1/plan"):
        response = running.http.post(path, content=BAD[name])
        assert response.status_code == 400, (response.status_code, response.text[:200])
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert len(error["message"]) < 300, "what was sent is not repeated"
    assert before == (len(running.box.local.requests), len(running.box.vendor.requests))


# -- generated bodies ---------------------------------------------------------------------------

RICH: dict[str, Any] = {
    "model": "conductor",
    "stream": False,
    "stream_options": None,
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "boss"},
        {"role": "developer", "content": [{"type": "text", "text": "Please."}]},
        {"role": "user", "content": [
            {"type": "text", "text": "hello"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
    "stop": ["x"],
    "logit_bias": {"1": 1},
    "metadata": {"a": "b"},
    "prediction": {"type": "content", "content": "x"},
    "audio": {"voice": "alloy"},
    "modalities": ["text"],
}  # fmt: skip

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "auto", "user", "data:x", "http://x", "conductor", "-1", "text"])
    | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "url", "text", "function", "name", "role", "content", "id"])
            | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
FIELDS = sorted({*_CHECKS, "messages", "metadata", "store", "modalities", "prediction", "audio",
                 "fallbacks", "unknown", "service_tier", "function_call"})  # fmt: skip
FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items: Any = ()
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    inner = [place for key, item in items for place in places(item, (*path, key))]
    return [path, *inner] if path else inner


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of `value` with `new` at `path`."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


PLACES = places(RICH)


def served(running: Running, body: Any, path: str = CHAT) -> None:
    """The answer is an answer, or the client's fault, in the API's form."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    response = running.http.post(path, content=content)
    assert response.status_code in (200, 400, 403, 404), (response.status_code, response.text)
    if response.status_code != 200:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@FUZZ
@given(name=st.sampled_from(FIELDS), value=VALUES, stream=st.booleans())
def test_no_value_of_any_field_is_a_500(
    name: str, value: Any, stream: bool, running: Running
) -> None:
    served(running, {**chat(), "stream": stream, name: value})


@FUZZ
@given(place=st.sampled_from(PLACES), value=VALUES, path=st.sampled_from([CHAT, "/v1/plan"]))
def test_no_value_in_any_place_is_a_500(
    place: tuple[Any, ...], value: Any, path: str, running: Running
) -> None:
    served(running, put(RICH, place, value), path)


@FUZZ
@given(start=st.integers(0, 400), cut=st.integers(0, 30), junk=st.binary(max_size=12))
def test_no_damage_to_the_text_is_a_500(
    start: int, cut: int, junk: bytes, running: Running
) -> None:
    text = orjson.dumps(RICH)
    served(running, text[:start] + junk + text[start + cut :])


@settings(FUZZ, max_examples=60)
@given(name=st.sampled_from(FIELDS), value=VALUES)
def test_no_value_of_any_field_makes_the_way_to_a_vendor_a_500(
    name: str, value: Any, running: Running
) -> None:
    body = {**chat("remote-a"), name: value}
    response = running.http.post(CHAT, content=orjson.dumps(body))
    assert response.status_code not in (500, 503, 504), response.text


# -- parsing --------------------------------------------------------------------------------------


async def test_others_on_the_loop_have_their_turn_while_a_long_body_is_parsed() -> None:
    async def turns(raw: bytes) -> int:
        parsing, turns = asyncio.create_task(parsed(raw)), 0
        while not parsing.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await parsing).model
        return turns

    assert await turns(body_of(1000)) == 1
    assert await turns(body_of(MIB)) > 1


async def test_a_long_body_is_refused_in_the_same_words_as_a_short_one() -> None:
    for size in (1000, MIB):
        with pytest.raises(BadRequest, match="role") as refused:
            await parsed(body_of(size).replace(b'"user"', b'"boss"'))
        assert refused.value.param == "messages[0].role"
