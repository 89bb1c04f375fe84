"""Events on the wire, read back by the official client's own parser."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from conductor.api import sse
from conductor.errors import UpstreamFailed
from conductor.run.stream import ChunkShaper
from support.clients import openai_client

TRICKY = "line\nbreak\r\n\u2028\u0085 data: [DONE]\n\n: no comment 😀"


@given(st.text().filter(lambda text: text.encode("utf-8", "replace").decode() == text))
def test_an_event_is_one_line_and_a_blank_one_whatever_it_holds(text: str) -> None:
    raw = sse.event({"choices": [{"delta": {"content": text}}]})
    assert raw.startswith(b"data: ") and raw.endswith(b"\n\n")
    assert raw.count(b"\n") == 2 and b"\r" not in raw
    assert json.loads(raw[6:])["choices"][0]["delta"]["content"] == text


def test_an_error_event_is_the_envelope() -> None:
    raw = sse.error_event(UpstreamFailed("The worker failed: try again."))
    assert json.loads(raw[6:])["error"]["code"] == "upstream_error"


async def served(pieces: list[bytes]) -> tuple[str, str]:
    """What the official client makes of a stream: the text, and the error's name if it raised."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=dict(sse.HEADERS))
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    text, error = "", ""
    try:
        async with openai_client(f"http://127.0.0.1:{port}/v1", "k") as client:
            stream: Any = await client.chat.completions.create(
                model="conductor", messages=[{"role": "user", "content": "x"}], stream=True
            )
            async for chunk in stream:
                text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    except openai.APIError as caught:
        error = str(caught.code)
    finally:
        await runner.cleanup()
    return text, error


@pytest.fixture
def chunks() -> list[bytes]:
    shaper = ChunkShaper("chatcmpl-1", 7, "conductor", True)
    upstream = {"choices": [{"index": 0, "delta": {"content": TRICKY}}]}
    return [sse.event(chunk) for chunk in shaper.feed(upstream) + shaper.finish()]


async def test_the_official_client_reads_the_text_unchanged(chunks: list[bytes]) -> None:
    pieces = [sse.KEEP_ALIVE, *chunks[:1], sse.KEEP_ALIVE, *chunks[1:], sse.DONE]
    assert await served(pieces) == (TRICKY, "")


async def test_the_official_client_raises_on_an_error_event(chunks: list[bytes]) -> None:
    pieces = [*chunks[:2], sse.error_event(UpstreamFailed("The worker failed."))]
    assert await served(pieces) == (TRICKY, "upstream_error")


async def test_the_official_client_reads_events_cut_at_any_byte(chunks: list[bytes]) -> None:
    raw = b"".join([*chunks, sse.DONE])
    pieces = [raw[n : n + 1] for n in range(len(raw))]
    assert await served(pieces) == (TRICKY, "")


def test_the_headers_stop_proxies_from_collecting_the_stream() -> None:
    assert sse.HEADERS["Content-Type"] == "text/event-stream"
    assert sse.HEADERS["X-Accel-Buffering"] == "no"
    assert sse.HEADERS["Cache-Control"] == "no-cache"
    with pytest.raises(TypeError):
        sse.HEADERS["x"] = "y"  # type: ignore[index]
