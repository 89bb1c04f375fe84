"""Chat completions on the wire: both modes, failures before and after the first content."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import orjson
import pytest
from aiohttp.web_protocol import RequestHandler

from conductor.api import server
from conductor.run import attempts
from support.appliance import Box, appliance, until
from support.clients import http_client
from support.configs import Tree, local_worker, remote_worker
from support.rawpeer import CHUNK, LAST, SSE, Peer, chunked, event, serving
from support.wire import (
    CHAT,
    chat,
    connections,
    content,
    counted,
    ended,
    events,
    is_envelope,
    post,
)

FAST = {"skill": {"general": 0.9}, "output_tokens_per_s": 900, "source": "declared"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Weather of a city: naïve “quotes” and \u2028 too",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Turin", "京都"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}},
}


def one(behaviour: str, **limits: object) -> list[Tree]:
    """A single local worker with a behaviour."""
    return [local_worker("local-a", port=0, model=behaviour, limits=limits)]


def before_good(behaviour: str, **limits: object) -> list[Tree]:
    """A worker that is asked first, and a good one that is asked when it may be."""
    first = local_worker("local-a", port=0, model=behaviour, limits=limits, card=FAST)
    return [first, local_worker("local-b", port=0, model="echo")]


def sent(box: Box, place: int = -1) -> Any:
    """The body of a request that the local workers got."""
    return orjson.loads(box.local.requests[place].body)


async def streamed(box: Box, **more: Any) -> list[Any]:
    """The events of a stream that opens well."""
    response = await box.http().post(CHAT, json=chat(stream=True, **more))
    assert response.status_code == 200, response.text
    return events(response.text)


# -- the golden shapes --------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["local-a", "remote-a"])
async def test_a_plain_answer_has_the_shape_of_the_api(model: str) -> None:
    async with appliance() as box:
        response = await box.http().post(CHAT, json=chat(model))
        body = response.json()
        identity, created, usage = body.pop("id"), body.pop("created"), body.pop("usage")
        message = {"role": "assistant", "content": "hello", "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        assert body == {"object": "chat.completion", "model": model, "choices": [choice]}
        assert identity == f"chatcmpl-{response.headers['x-conductor-decision']}"
        assert isinstance(created, int)
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
        assert response.headers["x-conductor-model"] == model
        assert response.headers["x-conductor-label"] == "internal"


@pytest.mark.parametrize("model", ["local-a", "remote-a"])
async def test_a_streamed_answer_has_the_shape_of_the_api(model: str) -> None:
    async with appliance() as box:
        chunks = await streamed(box, model=model, messages=[{"role": "user", "content": "a b c"}])
        assert chunks.pop() == "[DONE]"
        heads = {(c["id"], c["created"], c["model"], c["object"]) for c in chunks}
        assert len(heads) == 1
        assert heads.pop()[2:] == (model, "chat.completion.chunk")
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert all(set(delta) == {"content"} for delta in deltas[1:-1])
        assert deltas[-1] == {}
        assert reasons == [None] * (len(chunks) - 1) + ["stop"]
        assert content(chunks) == "a b c"
        assert not any("usage" in chunk for chunk in chunks)


async def test_usage_comes_in_a_chunk_of_its_own_and_only_when_asked_for() -> None:
    async with appliance(workers=one("echo")) as box:
        chunks = await streamed(box, stream_options={"include_usage": True})
        assert chunks.pop() == "[DONE]"
        last = chunks.pop()
        assert last["choices"] == []
        plain = (await box.http().post(CHAT, json=chat())).json()
        # The simulated vendor counts the opening delta of a stream as a token.
        assert last["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
        assert last["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"] + 1
        assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
        for options in ({"include_usage": False}, {}, None):
            assert not [c for c in await streamed(box, stream_options=options) if "usage" in c]
            assert sent(box)["stream_options"] == {"include_usage": True}  # we count in any case


async def test_a_streams_headers_keep_proxies_from_holding_it_back() -> None:
    async with appliance(workers=one("echo")) as box:
        headers = {"Accept-Encoding": "gzip, br"}
        response = await box.http().post(CHAT, json=chat(stream=True), headers=headers)
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["transfer-encoding"] == "chunked"
        assert "content-encoding" not in response.headers
        assert response.headers["x-conductor-engine"] == "default@serve"


async def test_each_event_goes_out_by_itself_and_at_once() -> None:
    """The worker says the next word when the client has the one before."""
    came = asyncio.Semaphore(0)

    async def word_by_word(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await peer.read_request(reader)
        writer.write(SSE)
        for _ in range(10):
            writer.write(event(CHUNK))
            await came.acquire()
        writer.write(event(LAST) + event(b"[DONE]") + chunked(b""))
        await peer.wait_hang_up(reader)

    async with (
        serving(word_by_word, unix=True) as peer,
        appliance(workers=[local_worker("local-a", unix=peer.endpoint.path)]) as box,
        box.http().stream("POST", CHAT, json=chat(stream=True)) as response,
    ):
        words = []
        async for data in response.aiter_raw():
            if b'"hi"' in data:
                assert data.endswith(b"\n\n")
                words.append(data.count(b'"hi"'))
                came.release()
        assert words == [1] * 10
        [connection] = connections()
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_streams_over_a_kept_connection_follow_each_other() -> None:
    async with appliance(workers=one("echo")) as box:
        http = box.http()
        for _ in range(5):
            response = await http.post(CHAT, json=chat(stream=True))
            assert events(response.text)[-1] == "[DONE]"
            assert "connection" not in response.headers
        assert len(box.local.connections) == 1


@pytest.mark.parametrize("worker", ["local-a", "remote-a"])
@pytest.mark.parametrize("stream", [False, True])
async def test_no_split_of_the_upstreams_bytes_breaks_a_character(
    worker: str, stream: bool
) -> None:
    workers = [
        local_worker("local-a", port=0, model="utf8-splits"),
        remote_worker("remote-a", "{vendor}", model="utf8-splits"),
    ]
    async with appliance(workers=workers) as box:
        if stream:
            said = content(await streamed(box, model=worker))
        else:
            said = (await box.ask(model=worker)).choices[0].message.content
        assert said == "caffè 日本語 👩‍👩‍👧 naïve 𝛑"


async def test_what_the_client_writes_in_any_script_reaches_the_worker_and_comes_back() -> None:
    text = "héllo 京都 👩‍👩‍👧 𝛑 \u2028 \U0010ffff"
    async with appliance(workers=one("echo")) as box:
        assert content(await streamed(box, messages=[{"role": "user", "content": text}])) == text
        assert sent(box)["messages"] == [{"role": "user", "content": text}]


# -- what passes through ------------------------------------------------------------------------

PASSED: Tree = {
    "tools": TOOLS,
    "tool_choice": {"type": "function", "function": {"name": "lookup"}},
    "parallel_tool_calls": False,
    "response_format": SCHEMA,
    "n": 2,
    "seed": 7,
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"50256": -100},
    "temperature": 0.3,
    "top_p": 0.9,
    "stop": ["\n\n", "END"],
    "presence_penalty": -0.5,
    "frequency_penalty": 0.5,
}


@pytest.mark.parametrize("model", ["conductor-quality", "local-a"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_one_step_plan_passes_the_request_on_unchanged(model: str, stream: bool) -> None:
    async with appliance(workers=before_good("echo")) as box:
        response = await box.http().post(CHAT, json=chat(model, stream=stream, **PASSED))
        assert response.status_code == 200, response.text
        assert len(box.local.requests) == 1, "tools, schemas, n and logprobs need one worker"
        body = sent(box)
        assert {name: body[name] for name in PASSED} == PASSED
        assert body["messages"] == chat()["messages"]
        assert body["stream"] is stream


async def test_each_field_that_needs_one_worker_has_one_even_where_quality_is_asked_for() -> None:
    async with appliance(workers=before_good("echo")) as box:
        for name in ("tools", "response_format", "n", "logprobs", "logit_bias"):
            body = chat("conductor-quality", **{name: PASSED[name]})
            response = await box.http().post(CHAT, json=body)
            assert response.status_code == 200, response.text
            assert len(box.local.requests) == 1, name
            box.local.requests.clear()


async def test_a_remote_worker_gets_them_too_and_nothing_about_who_asks() -> None:
    workers = [remote_worker("remote-a", "{vendor}", model="echo")]
    private = {"user": "u-1", "metadata": {"ticket": "t-1"}, "store": True, "unknown_field": 1}
    async with appliance(workers=workers) as box:
        response = await box.http().post(CHAT, json=chat(**PASSED, **private))
        assert response.status_code == 200, response.text
        body = orjson.loads(box.vendor.requests[0].body)
        assert {name: body[name] for name in PASSED} == PASSED
        assert not set(private) & set(body)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_both_spellings_of_the_token_limit_reach_each_kind_of_worker(name: str) -> None:
    async with appliance() as box:
        for worker, server_, spelled in (
            ("local-a", box.local, "max_tokens"),
            ("remote-a", box.vendor, name),
        ):
            await box.ask(model=worker, **{name: 9})
            body = orjson.loads(server_.requests[-1].body)
            limits = {k: v for k, v in body.items() if k.startswith("max_")}
            assert limits == {spelled: 9}


async def test_every_choice_is_told_apart_in_both_modes() -> None:
    async with appliance(workers=one("echo")) as box:
        plain = await box.ask("a b", n=2)
        assert [c.message.content for c in plain.choices] == ["a b", "a b"]
        chunks = await streamed(box, n=2, messages=[{"role": "user", "content": "a b"}])
        said = {0: "", 1: ""}
        for chunk in chunks[:-1]:
            for choice in chunk["choices"]:
                said[choice["index"]] += choice["delta"].get("content", "")
        assert said == {0: "a b", 1: "a b"}


@pytest.mark.parametrize("worker", ["local-a", "remote-a"])
async def test_tool_calls_agree_in_both_modes(worker: str) -> None:
    workers = [
        local_worker("local-a", port=0, model="tool-call"),
        remote_worker("remote-a", "{vendor}", model="tool-call"),
    ]
    async with appliance(workers=workers) as box:
        plain = (await box.ask(model=worker, tools=TOOLS)).choices[0]
        assert (plain.finish_reason, plain.message.content) == ("tool_calls", None)
        [call] = plain.message.tool_calls
        assert (call.function.name, call.function.arguments) == ("lookup", '{"city": "Turin"}')
        chunks = await streamed(box, model=worker, tools=TOOLS)
        deltas = [
            entry
            for chunk in chunks[:-1]
            for choice in chunk["choices"]
            for entry in choice["delta"].get("tool_calls", [])
        ]
        first = {"id": call.id, "type": "function", "function": {"name": "lookup", "arguments": ""}}
        assert deltas[0] == {"index": 0, **first}
        assert all(set(delta) == {"index", "function"} for delta in deltas[1:])
        assert "".join(d["function"]["arguments"] for d in deltas) == '{"city": "Turin"}'
        assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_quality_takes_three_calls_and_its_usage_counts_them_all() -> None:
    async with appliance(workers=before_good("echo")) as box:
        answer = await box.ask("a b", model="conductor-quality")
        assert len(box.local.requests) == 3
        assert answer.usage.completion_tokens > 4
        chunks = await streamed(box, model="conductor-quality")
        assert len(box.local.requests) == 6
        assert [sent(box, i)["stream"] for i in (3, 4, 5)] == [False, False, True]
        assert chunks[-1] == "[DONE]"


# -- failure before any content -----------------------------------------------------------------

BEFORE: list[tuple[Any, ...]] = [
    # behaviour, limits, status, code, requests that the lone worker gets. The first row is the only
    # one whose connection was not kept from before, which would be worth one more request.
    ("cut-before-head", {}, 503, "no_local_backend", 2),
    ("status-500", {}, 502, "upstream_error", 2),
    ("status-503", {}, 503, "overloaded", 1),
    ("status-429-retry-7", {}, 503, "overloaded", 1),
    ("status-401", {}, 502, "upstream_error", 1),
    ("status-403", {}, 502, "upstream_error", 1),
    ("status-404", {}, 502, "upstream_error", 2),
    ("status-302", {}, 502, "upstream_error", 2),
    ("context-length", {}, 400, "context_length_exceeded", 1),
    ("malformed-json", {}, 502, "upstream_error", 2),
    ("empty", {}, None, None, 2),
    ("no-choices", {}, 502, "upstream_error", 2),
    ("deep-json", {}, 502, "upstream_error", 2),
    ("cut-before-body", {}, 503, "no_local_backend", 2),
    ("slow-first-byte-60000", {"first_byte_s": 0.5}, 504, "upstream_timeout", 1),
    ("stall", {"total_s": 0.5}, 504, "upstream_timeout", 1),
]
VENDORS: list[tuple[Any, ...]] = [
    ("status-401", {}, 502, "upstream_error"),
    ("status-500", {}, 502, "upstream_error"),
    ("status-429-retry-7", {}, 503, "overloaded"),
    ("context-length", {}, 400, "context_length_exceeded"),
    ("malformed-json", {}, 502, "upstream_error"),
    ("cut-before-head", {}, 502, "upstream_error"),
    ("slow-first-byte-60000", {"first_byte_s": 0.5}, 504, "upstream_timeout"),
]
MOVES = [row for row in BEFORE if row[0] not in ("stall", "context-length")]


def together(kind: str, rows: list[tuple[Any, ...]], **more: object) -> list[Tree]:
    """One worker for each behaviour, `w-0` first in the order in which a plan tries them."""
    workers = []
    for place, (behaviour, limits, *_) in enumerate(rows):
        card = {**FAST, "output_tokens_per_s": 900 - place}
        facts = {"model": behaviour, "limits": limits, "card": card, **more}
        workers.append(
            local_worker(f"w-{place}", port=0, **facts)
            if kind == "local"
            else remote_worker(f"w-{place}", "{vendor}", **facts)
        )
    return workers


@pytest.mark.parametrize("stream", [False, True])
async def test_a_lone_workers_failure_is_a_real_status_in_both_modes(stream: bool) -> None:
    async with appliance(workers=together("local", BEFORE)) as box:
        for place, (behaviour, _, status, code, calls) in enumerate(BEFORE):
            asked = len(box.local.requests)
            response = await box.http().post(CHAT, json=chat(f"w-{place}", stream=stream))
            if behaviour == "empty":  # as a stream it is one that was cut
                status, code = (503, "no_local_backend") if stream else (502, "upstream_error")
            assert is_envelope(response, status, code), behaviour
            assert len(box.local.requests) - asked == calls, behaviour
            assert b"simulated" not in response.content, "no text of a worker is passed on"
            assert "x-conductor-decision" in response.headers
            if status == 503:
                assert 1 <= int(response.headers["retry-after"]) <= 7
            if "429" in behaviour:
                assert response.headers["retry-after"] == "7"
        outcomes = await ended(box, len(BEFORE))
        assert [outcome["outcome"] for outcome in outcomes] == ["failed"] * len(BEFORE)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_next_permitted_worker_takes_over_before_any_content(stream: bool) -> None:
    workers = [*together("local", MOVES), local_worker("good", port=0, model="echo")]
    many = {"limits": {"max_calls": 50}}
    async with appliance(workers=workers, appliance=many) as box:
        response = await box.http().post(CHAT, json=chat(stream=stream))
        assert response.status_code == 200, response.text
        assert response.headers["x-conductor-model"] == "good"
        asked = [sent(box, place)["model"] for place in range(len(box.local.requests))]
        assert asked == [*(row[0] for row in MOVES), "echo"]
        if stream:
            assert content(events(response.text)) == "hello"
            assert len({e["model"] for e in events(response.text)[:-1]}) == 1
        else:
            assert response.json()["choices"][0]["message"]["content"] == "hello"


async def test_a_vendors_failures_are_told_like_a_local_workers() -> None:
    async with appliance(workers=together("remote", VENDORS)) as box:
        for place, (behaviour, _, status, code) in enumerate(VENDORS):
            response = await box.http().post(CHAT, json=chat(f"w-{place}"))
            assert is_envelope(response, status, code), behaviour
            for word in (b"simulated", b"litellm", b"127.0.0.1", b"openai"):
                assert word not in response.content.lower(), behaviour


async def test_a_full_window_is_told_in_the_words_that_libraries_match() -> None:
    async with appliance(workers=one("context-length")) as box:
        with pytest.raises(openai.BadRequestError) as full:
            await box.ask()
        assert (full.value.code, full.value.param) == ("context_length_exceeded", "messages")
        assert full.value.body["message"] == (  # type: ignore[index]
            "This model's maximum context length is 8192 tokens. However, your messages resulted "
            "in 9000 tokens."
        )


@pytest.mark.parametrize("behaviour", ["status-400", "status-422"])
async def test_what_a_worker_calls_invalid_goes_to_no_other_worker(behaviour: str) -> None:
    async with appliance(workers=before_good(behaviour)) as box:
        response = await box.http().post(CHAT, json=chat())
        assert is_envelope(response, 400, None)
        assert len(box.local.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_an_answer_and_goes_to_no_other_worker(stream: bool) -> None:
    async with appliance(workers=before_good("refusal")) as box:
        if stream:
            chunks = await streamed(box)
            said, reason = content(chunks), chunks[-2]["choices"][0]["finish_reason"]
        else:
            choice = (await box.ask()).choices[0]
            said, reason = choice.message.content, choice.finish_reason
        assert (said, reason) == ("[simulated] I cannot help.", "content_filter")
        assert len(box.local.requests) == 1


HOSTILE = [("lone-surrogate", {}), ("huge-number", {}), ("deep-json", {}), ("huge", {})]


@pytest.mark.parametrize("kind", ["local", "remote"])
async def test_what_a_hostile_worker_sends_breaks_nothing(kind: str) -> None:
    async with appliance(workers=together(kind, HOSTILE)) as box:
        for place in range(len(HOSTILE)):
            for stream in (False, True):
                response = await box.http().post(CHAT, json=chat(f"w-{place}", stream=stream))
                assert response.status_code in (200, 502), (place, response.text[:300])
                if response.status_code == 200 and stream:
                    last = events(response.text)[-1]
                    assert last == "[DONE]" or last["error"]["code"] == "upstream_error"
                elif response.status_code == 200:
                    assert response.json()["object"] == "chat.completion"


# -- failure after content ----------------------------------------------------------------------

AFTER = [
    ("cut-mid-stream", {}, "upstream_error"),
    ("end-mid-stream", {}, "upstream_error"),
    ("error-in-band", {}, "upstream_error"),
    ("malformed-sse", {}, "upstream_error"),
    ("stall-mid-stream", {"idle_s": 0.15}, "upstream_timeout"),
    ("stall-mid-stream", {"total_s": 0.5}, "upstream_timeout"),
]


@pytest.mark.parametrize(("behaviour", "limits", "code"), AFTER)
async def test_a_stream_that_fails_ends_in_an_error_without_done_and_is_not_spliced(
    behaviour: str, limits: Tree, code: str
) -> None:
    async with appliance(workers=before_good(behaviour, **limits)) as box:
        async with box.http().stream("POST", CHAT, json=chat(stream=True)) as response:
            assert response.status_code == 200
            got = events((await response.aread()).decode())
        assert content(got).startswith("[simulated]")
        assert "[DONE]" not in got
        assert got[-1]["error"]["code"] == code
        assert set(got[-1]) == {"error"}
        assert set(got[-1]["error"]) == {"message", "type", "param", "code"}
        assert "simulated" not in str(got[-1])
        assert not [c for c in got[:-1] if c["choices"][0]["finish_reason"]]
        assert [sent(box, i)["model"] for i in range(len(box.local.requests))] == [behaviour]
        [outcome] = await ended(box)
        assert outcome["outcome"] == "failed"
        assert outcome["worker"] == "local-a"
        assert await counted(box, "conductor_requests_total", outcome="failed") == 1


async def test_the_official_client_raises_when_a_stream_fails() -> None:
    async with appliance(workers=one("cut-mid-stream")) as box:
        said = ""
        with pytest.raises(openai.APIError) as failed:
            async for chunk in await box.ask(stream=True):
                said += chunk.choices[0].delta.content or ""
        assert said.startswith("[simulated]")
        assert failed.value.code == "upstream_error"


async def test_a_failed_remote_stream_ends_the_same_way() -> None:
    workers = [remote_worker("remote-a", "{vendor}", model="cut-mid-stream")]
    async with appliance(workers=workers) as box:
        got = await streamed(box)
        assert content(got).startswith("[simulated]")
        assert got[-1]["error"]["code"] == "upstream_error"
        assert "[DONE]" not in got


async def test_the_connection_of_a_failed_stream_is_closed() -> None:
    async with appliance(workers=one("cut-mid-stream")) as box:
        http = box.http()
        await http.post(CHAT, json=chat(stream=True))
        await until(lambda: not connections())
        assert (await http.get("/v1/models")).status_code == 200


async def test_an_answer_with_its_finish_reason_but_no_done_is_whole() -> None:
    async with appliance(workers=one("no-done")) as box:
        chunks = await streamed(box)
        assert chunks[-1] == "[DONE]"
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


async def test_a_fault_of_our_own_in_mid_stream_is_told_in_band(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(attempts.ChunkShaper):
        def finish(self, *_: object) -> list[Any]:
            raise KeyError("secret detail")

    monkeypatch.setattr(attempts, "ChunkShaper", Broken)
    async with appliance(workers=one("echo")) as box:
        response = await box.http().post(CHAT, json=chat(stream=True))
        got = events(response.text)
        assert got[-1]["error"]["code"] == "internal_error"
        assert "[DONE]" not in got
        assert "secret" not in response.text
        assert await counted(box, "conductor_requests_total", outcome="failed") == 1


async def test_a_fault_of_our_own_before_content_is_a_500_envelope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("secret detail")

    monkeypatch.setattr(attempts, "shape_plain", broken)
    monkeypatch.setattr(attempts, "ChunkShaper", broken)
    async with appliance(workers=one("echo")) as box:
        for stream in (False, True):
            response = await box.http().post(CHAT, json=chat(stream=stream))
            assert is_envelope(response, 500, "internal_error")
            assert "secret" not in response.text


# -- slow workers, slow clients, and time -------------------------------------------------------

TOO_LONG: Tree = {"limits": {"total_s": 1.5}}
"""Long enough for the way to the worker, disk and planner included, whatever else goes on."""


async def test_a_held_stream_is_kept_alive_and_then_answered() -> None:
    async with appliance(
        workers=one("slow-first-byte-500"), appliance={"api": {"hold_s": 0.05}}
    ) as box:
        response = await box.http().post(CHAT, json=chat(stream=True))
        assert response.status_code == 200
        assert response.text.startswith(": keep-alive\n\n")
        chunks = events(response.text)
        assert chunks[-1] == "[DONE]"
        said = [c async for c in await box.ask(stream=True)]
        assert said[-1].choices[0].finish_reason == "stop"


async def test_a_held_stream_still_fails_over_and_tells_a_last_failure_in_band() -> None:
    hold: Tree = {"api": {"hold_s": 0.05}}
    slow = {"first_byte_s": 0.5}
    async with appliance(
        workers=before_good("slow-first-byte-60000", **slow), appliance=hold
    ) as box:
        response = await box.http().post(CHAT, json=chat(stream=True))
        assert response.text.startswith(": keep-alive\n\n")
        assert content(events(response.text)) == "hello"
    async with appliance(workers=one("slow-first-byte-60000", **slow), appliance=hold) as box:
        response = await box.http().post(CHAT, json=chat(stream=True))
        assert response.status_code == 200
        assert response.text.startswith(": keep-alive\n\n")
        [last] = events(response.text)
        assert last["error"]["code"] == "upstream_timeout"
        with pytest.raises(openai.APIError):
            [c async for c in await box.ask(stream=True)]


async def test_a_stream_that_begins_in_time_has_no_comment() -> None:
    async with appliance(workers=one("slow-chunks-20")) as box:
        response = await box.http().post(CHAT, json=chat(stream=True))
        assert ": keep-alive" not in response.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_takes_too_long_in_all_is_a_504(stream: bool) -> None:
    async with appliance(workers=one("stall"), appliance=TOO_LONG) as box:
        response = await box.http().post(CHAT, json=chat(stream=stream))
        assert is_envelope(response, 504, "upstream_timeout")
        assert (await ended(box))[0]["outcome"] == "failed"
        await until(lambda: box.local.requests[0].aborted)


async def test_a_stream_that_takes_too_long_in_all_ends_in_band_and_counts_as_failed() -> None:
    async with appliance(workers=one("stall-mid-stream"), appliance=TOO_LONG) as box:
        got = await streamed(box)
        assert got[-1]["error"]["code"] == "upstream_timeout"
        assert content(got)
        assert (await ended(box))[0]["outcome"] == "failed"
        assert await counted(box, "conductor_requests_total", outcome="failed") == 1


@asynccontextmanager
async def deaf_client(box: Box, *, stream: bool) -> AsyncIterator[RequestHandler[Any]]:
    """Somebody who asks and then reads nothing; the API's side of it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", box.server.port))
    _, writer = await asyncio.open_connection(sock=sock, limit=1)
    await until(connections)
    [connection] = connections()
    writer.write(post(orjson.dumps(chat(stream=stream))))
    await until(lambda: box.local.requests)
    yield connection
    writer.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_does_not_read_is_cut_off(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STALLED_READER_S", 0.5)
    async with appliance(workers=one("long-150000")) as box:
        async with deaf_client(box, stream=stream) as connection:
            await until(lambda: connection.transport is None)
            await until(lambda: box.server.door.inside == 0)


async def test_a_client_that_does_not_read_keeps_no_worker_beyond_the_time_of_a_request() -> None:
    async with appliance(workers=one("long-150000"), appliance=TOO_LONG) as box:
        async with deaf_client(box, stream=True):
            await until(lambda: box.local.requests[0].aborted)
            assert (await ended(box))[0]["outcome"] == "failed"


async def test_http_1_0_gets_a_stream_that_the_end_of_the_connection_ends() -> None:
    async with appliance(workers=one("echo")) as box:
        reader, writer = await asyncio.open_connection("127.0.0.1", box.server.port)
        writer.write(post(orjson.dumps(chat(stream=True))).replace(b"HTTP/1.1", b"HTTP/1.0"))
        received = await reader.read()
        top, _, text = received.partition(b"\r\n\r\n")
        assert b"chunked" not in top.lower()
        assert events(text.decode())[-1] == "[DONE]"
        writer.close()


async def test_many_streams_at_once_do_not_mix() -> None:
    async with appliance(workers=one("echo", max_in_flight=64)) as box:
        http = http_client(box.url)

        async def ask(number: int) -> None:
            text = " ".join(f"word-{number}" for _ in range(20))
            body = chat(stream=True, messages=[{"role": "user", "content": text}])
            headers = {"Authorization": "Bearer test-key-of-app"}
            response = await http.post(CHAT, json=body, headers=headers)
            assert content(events(response.text)) == text

        async with http:
            await asyncio.gather(*(ask(number) for number in range(60)))
