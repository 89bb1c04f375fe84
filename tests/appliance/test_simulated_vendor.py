"""The simulated vendor: records every byte, notices who hangs up, and plays each fault exactly."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conductor.simulated.behaviours import BEHAVIOURS
from conductor.simulated.vendor import SimulatedVendor, run_vendor
from support.clients import http_client, openai_client
from support.soon import SOON_S, until
from support.vendor import short_directory

QUESTION: list[Any] = [{"role": "user", "content": "ciao a tutti"}]


def request_bytes(
    model: str, *, stream: bool = False, cut: int = 0, close: bool = True, **more: Any
) -> bytes:
    body = json.dumps({"model": model, "messages": QUESTION, "stream": stream, **more}).encode()
    kept = "Connection: close\r\n" if close else ""
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: v\r\n" + kept
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) - cut]


async def dial(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def answer_to(port: int, sent: bytes, *, silent_after: bytes | None = None) -> bytes:
    """Everything that comes back until the vendor hangs up, or for a moment more once
    `silent_after` has come."""
    reader, writer = await dial(port)
    writer.write(sent)
    received = b""
    with suppress(TimeoutError):
        while True:
            silent = silent_after is not None and silent_after in received
            async with asyncio.timeout(0.3 if silent else SOON_S):
                if not (piece := await reader.read(65536)):
                    break
            received += piece
    writer.close()
    return received


@pytest.mark.parametrize("stream", [False, True])
async def test_the_official_client_reads_its_good_answers(stream: bool) -> None:
    texts = {
        "ok": "[simulated] A canned answer of ok; no model was asked.",
        "frontier-large": "[simulated] A canned answer of frontier-large; no model was asked.",
        "a:echo": "ciao a tutti",
        "long-3": "word word word ",
        "refusal": "[simulated] I cannot help.",
        "utf8-splits": "caffè 日本語 👩‍👩‍👧 naïve 𝛑",
        "slow-chunks-2": "[simulated] A canned answer of slow-chunks-2; no model was asked.",
        "slow-chunks-1": "[simulated] A canned answer of slow-chunks-1; no model was asked.",
        "no-usage": "[simulated] A canned answer of no-usage; no model was asked.",
    }
    async with SimulatedVendor() as vendor:
        url = f"http://127.0.0.1:{await vendor.start_tcp()}/v1"
        async with openai_client(url, "k") as client:
            for model, expected in texts.items():
                if stream:
                    events = await client.chat.completions.create(
                        model=model, messages=QUESTION, stream=True
                    )
                    deltas = [chunk.choices[0].delta.content or "" async for chunk in events]
                    assert "".join(deltas) == expected
                else:
                    whole = await client.chat.completions.create(model=model, messages=QUESTION)
                    assert whole.choices[0].message.content == expected
            assert {request.header("authorization") for request in vendor.requests} == {"Bearer k"}


async def test_usage_comes_in_its_own_chunk_when_asked_for() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        asked = {"stream_options": {"include_usage": True}}
        assert b'"choices":[],"usage"' in await answer_to(
            port, request_bytes("ok", stream=True, **asked)
        )
        assert b'"usage"' not in await answer_to(port, request_bytes("ok", stream=True))


async def test_the_same_request_gets_the_same_bytes() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        for stream in (False, True):
            sent = request_bytes("ok", stream=stream, n=2)
            assert await answer_to(port, sent) == await answer_to(port, sent)


@pytest.mark.parametrize("stream", [False, True])
async def test_cuts_come_where_their_names_say(stream: bool) -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()

        async def told(model: str) -> bytes:
            silent_after = {"stall": b"", "stall-mid-stream": b"[simulated]"}.get(model)
            sent = request_bytes(model, stream=stream)
            return await answer_to(port, sent, silent_after=silent_after)

        assert await told("cut-before-head") == b""
        assert (await told("cut-before-body")).endswith(b"\r\n\r\n")
        for model in ("cut-mid-stream", "stall-mid-stream", "end-mid-stream"):
            begun = await told(model)
            assert b"[simulated]" in begun
            assert b'"finish_reason":"stop"' not in begun or not stream
            assert b"[DONE]" not in begun
            assert begun.endswith(b"0\r\n\r\n") == (stream and model == "end-mid-stream")
        assert await told("stall") == b""
        await until(lambda: all(it.answered or it.aborted for it in vendor.requests))


async def test_statuses_carry_their_retry_time() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        told = await answer_to(port, request_bytes("status-429-retry-7"))
        assert told.startswith(b"HTTP/1.1 429 ")
        assert b"Retry-After: 7\r\n" in told
        assert b"Retry-After" not in await answer_to(port, request_bytes("status-503"))


async def test_every_answer_says_that_it_is_simulated() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        silent = {"cut-before-head", "stall", r"slow-first-byte-(\d+)", "huge"}
        for pattern, _ in BEHAVIOURS:
            if pattern not in silent:
                model = pattern.replace(r"(\d+)", "2").replace(r"([3-5]\d\d)", "500")
                said = b"\r\nX-Simulated: true\r\n"
                after = said if model == "stall-mid-stream" else None
                sent = request_bytes(model.split("(?:")[0])
                assert said in await answer_to(port, sent, silent_after=after)


# -- recording --------------------------------------------------------------------------------


async def test_every_byte_is_kept_even_of_a_request_that_never_ended() -> None:
    whole, cut = request_bytes("ok"), request_bytes("ok", cut=3)
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        reader, writer = await dial(port)
        for place in range(len(whole)):
            writer.write(whole[place : place + 1])
        await reader.readuntil(b"\r\n\r\n")
        other = await dial(port)
        other[1].write(cut)
        await until(lambda: len(vendor.received) == len(whole + cut))
        assert vendor.received == whole + cut
        assert len(vendor.requests) == 1
        assert vendor.requests[0].headers[0] == ("Host", "v")
        writer.close()
        other[1].close()


async def test_a_caller_that_hangs_up_is_noticed_in_every_window() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        for model in ("stall", "stall-mid-stream", "long-1000000", "huge"):
            _, writer = await dial(port)
            writer.write(request_bytes(model, stream=True))
            count = len(vendor.requests)
            await until(lambda n=count: len(vendor.requests) > n)
            writer.close()
            await until(lambda: vendor.requests[-1].aborted, 1.0)
            assert not vendor.requests[-1].answered
        assert vendor.open_connections == 0


async def test_an_answer_that_was_read_is_not_an_abort() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        await answer_to(port, request_bytes("ok", stream=True))
        await until(lambda: vendor.open_connections == 0)
        assert not vendor.requests[0].aborted


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        models = ("slow-first-byte-30", "ok", "status-500")
        told = await answer_to(
            port,
            b"".join(request_bytes(model, close=False) for model in models),
            silent_after=b" 500 ",
        )
        assert (
            told.index(b"slow-first-byte-30") < told.index(b"answer of ok") < told.index(b" 500 ")
        )
        assert len(vendor.connections) == 1


async def test_a_thousand_streams_at_once_are_cheap_and_leave_nothing_open() -> None:
    with short_directory() as directory:
        async with SimulatedVendor() as vendor:
            await vendor.start_unix(directory / "v.sock")

            async def one() -> bytes:
                reader, writer = await asyncio.open_unix_connection(str(directory / "v.sock"))
                writer.write(request_bytes("long-20", stream=True))
                told = await reader.readuntil(b"[DONE]\n\n")
                writer.close()
                return told

            answers = await asyncio.gather(*(one() for _ in range(1000)))
            assert {answer.count(b"word ") for answer in answers} == {20}
            await until(lambda: vendor.open_connections == 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 4\r\n\r\nnull",
        b'POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 15\r\n\r\n{"messages":[1]}',
        b"POST /elsewhere HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"\xff\xfe\x00\r\n\r\n",
    ],
)
async def test_nonsense_is_answered_with_an_error_and_kept(sent: bytes) -> None:
    async with SimulatedVendor() as vendor:
        told = await answer_to(await vendor.start_tcp(), sent, silent_after=b"HTTP/1.1 4")
        assert told.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 "))
        assert vendor.received == sent


async def test_an_endless_head_is_cut_off() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        reader, writer = await dial(port)
        writer.write(b"x" * 200_000)
        with pytest.raises(ConnectionError):
            while await reader.read(1024):
                pass
            raise ConnectionResetError
        await until(lambda: vendor.open_connections == 0)
        writer.close()


async def test_the_demo_vendor_writes_down_each_request_body(tmp_path: Path) -> None:
    record = tmp_path / "received.jsonl"
    probe = SimulatedVendor()
    port = await probe.start_tcp()
    await probe.close()
    task = asyncio.create_task(run_vendor("127.0.0.1", port, record))
    await until(record.exists)
    async with http_client() as client:
        url = f"http://127.0.0.1:{port}"
        assert (await client.get(f"{url}/health")).json() == {"status": "ok"}
        assert (await client.get(f"{url}/v1/models")).json()["data"][0]["owned_by"] == "simulated"
        for text in ("one", "two\nlines"):
            body = {"model": "ok", "messages": [{"role": "user", "content": text}]}
            assert (await client.post(f"{url}/v1/chat/completions", json=body)).status_code == 200
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    bodies = [json.loads(line) for line in record.read_text().splitlines()]
    assert [body["messages"][0]["content"] for body in bodies] == ["one", "two\nlines"]
