"""Egress over real sockets: what is not permitted sends nothing, what fails says how."""

from __future__ import annotations

import asyncio
import gc
import io
from dataclasses import replace
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.chat.fields import REMOTE_FIELDS
from conductor.chat.messages import for_worker
from conductor.core import Call, Failure
from conductor.egress.client import EgressLink
from conductor.egress.outgoing import MESSAGE_FIELDS, VENDOR_FIELDS
from conductor.egress.permit import boottime_ns, digest
from conductor.egress.providers import LiteLLMProvider
from conductor.errors import StartError, WorkerError
from conductor.workers.http import HttpCaller
from support.soon import until
from support.vendor import (
    PATIENT,
    VENDOR_KEY,
    Egress,
    chat_body,
    remote_worker,
    running_egress,
)

WITHIN_S = 1.0
"""What the product promises."""

SILENT = replace(PATIENT, connect_s=1.0, first_byte_s=0.01)
IDLE = replace(PATIENT, idle_s=0.3)
TOTAL = replace(PATIENT, total_s=1.0)


async def reason_of(egress: Egress, body: bytes, worker: str, token: str | None) -> str:
    async with egress.post(body, worker, token) as response:
        assert response.status == 403
        assert response.headers["x-conductor-failure"] == "permit"
        await response.read()
        return str(response.headers["x-conductor-reason"])


# -- what is not permitted sends nothing ------------------------------------------------------


async def test_no_wrong_permit_makes_a_single_byte_reach_the_vendor() -> None:
    body = chat_body()
    async with running_egress("ok", "echo") as egress:
        stranger = replace(egress, private_key=Ed25519PrivateKey.generate())
        wrong = {
            "malformed": ["", "x", "a.b", egress.token(body, "ok")[:-2]],
            "signature": [stranger.token(body, "ok")],
            "expired": [
                egress.token(body, "ok", expires_boottime_ns=boottime_ns() - 1),
                egress.token(body, "ok", expires_boottime_ns=boottime_ns() + 10**15),
            ],
            "body": [egress.token(body, "ok", body_sha256=digest(body + b" "))],
            "worker": [egress.token(body, "echo")],
            "destination": [egress.token(body, "ok", destination="box")],
            "label": [egress.token(body, "ok", label="harmless")],
            "clearance": [
                egress.token(body, "ok", label="restricted"),
                egress.token(body, "ok", label="public+pii"),
                egress.token(body, "ok", label="public+unscanned"),
            ],
            "epoch": [egress.token(body, "ok", epoch="0" * 32)],
        }
        for reason, tokens in wrong.items():
            for token in tokens:
                assert await reason_of(egress, body, "ok", token) == reason
        assert egress.vendor.received == b""
        assert egress.vendor.connections == []


async def test_an_altered_body_under_a_valid_permit_sends_nothing() -> None:
    body = chat_body("permitted")
    async with running_egress("ok") as egress:
        token = egress.token(body, "ok")
        assert await reason_of(egress, chat_body("swapped"), "ok", token) == "body"
        assert egress.vendor.received == b""


async def test_a_permit_is_good_for_one_request_even_when_twenty_come_at_once() -> None:
    body = chat_body()
    async with running_egress("ok") as egress:
        token = egress.token(body, "ok")

        async def once() -> int:
            async with egress.post(body, "ok", token) as response:
                await response.read()
                return int(response.status)

        statuses = await asyncio.gather(*(once() for _ in range(20)))
        assert sorted(statuses) == [200] + [403] * 19
        assert len(egress.vendor.requests) == 1
        assert await reason_of(egress, body, "ok", token) == "replay"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"messages": [',
        b'{"messages":[{"role":"user","content":"a"}]}\x00',
        orjson.dumps({"messages": []}),
        orjson.dumps({"messages": {"role": "user"}}),
        orjson.dumps({"messages": ["hello"]}),
        orjson.dumps({"messages": [{"content": "no role"}]}),
        orjson.dumps({"messages": [{"role": "user", "content": 7}]}),
        orjson.dumps({"messages": [{"role": "user", "content": ["x"]}]}),
        orjson.dumps({"messages": [{"role": "user", "content": "a", "cache_control": {}}]}),
        chat_body(model="echo"),
        chat_body(api_base="http://127.0.0.1:1/v1"),
        chat_body(base_url="http://127.0.0.1:1/v1"),
        chat_body(api_key="sk-other"),
        chat_body(fallbacks=["echo"]),
        chat_body(num_retries=3),
        chat_body(mock_response="hi"),
        chat_body(extra_headers={"x-a": "b"}),
        chat_body(extra_body={"a": 1}),
        chat_body(metadata={"a": "b"}),
        chat_body(user="somebody"),
        chat_body(custom_llm_provider="anthropic"),
        chat_body(client="x"),
        chat_body(functions={}),
        chat_body(web_search_options={}),
        chat_body(tools=[{"type": "mcp", "server_url": "litellm_proxy"}]),
        chat_body(tools=[{"type": "web_search"}]),
        chat_body(tools=["x"]),
        chat_body(temperature="hot"),
        chat_body(n=[1]),
        chat_body(stop={"a": 1}),
        chat_body(response_format="json"),
        orjson.dumps(
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}}
                        ],
                    }
                ]
            }
        ),
        orjson.dumps(
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "file", "file": {"file_data": "http://127.0.0.1:9/"}}],
                    }
                ]
            }
        ),
    ],
)
async def test_a_permitted_body_outside_the_allow_list_is_refused_and_not_sent(
    body: bytes, one_egress: Egress
) -> None:
    async with one_egress.post(body, "ok") as response:
        text = await response.text()
        assert (response.status, response.headers["x-conductor-failure"]) == (400, "bad_request")
        assert "127.0.0.1" not in text
        assert one_egress.vendor.received == b""


@pytest.fixture
async def one_egress() -> Any:
    async with running_egress("ok") as egress:
        yield egress


def test_serve_and_egress_agree_on_what_a_vendor_may_see() -> None:
    assert REMOTE_FIELDS | {"stream", "stream_options"} == VENDOR_FIELDS
    keys = dict.fromkeys([*MESSAGE_FIELDS, "audio", "annotations", "cache_control"], "x")
    assert for_worker([keys], remote=True)[0].keys() == MESSAGE_FIELDS


async def test_a_body_over_the_limit_is_refused() -> None:
    async with running_egress("ok") as egress:
        body = chat_body("x" * 2**21)
        token = egress.token(body, "ok")
        async with egress.post(io.BytesIO(body), "ok", token) as response:
            assert response.headers["x-conductor-failure"] == "bad_request"
        assert egress.vendor.received == b""


# -- what the vendor gets ---------------------------------------------------------------------


async def test_the_vendor_gets_the_body_and_our_key_and_nothing_else_of_ours() -> None:
    body = chat_body(
        "ciao", temperature=0.5, tools=[{"type": "function", "function": {"name": "f"}}]
    )
    private = {
        "x-request-id": "req-private",
        "authorization": "Bearer client-key",
        "cookie": "a=b",
        "x-forwarded-for": "10.0.0.1",
        "traceparent": "00-private",
    }
    async with running_egress("ok") as egress:
        async with egress.post(body, "ok", **private) as response:
            assert response.status == 200
        names = [name.lower() for name, _ in egress.last.headers]
        assert names == [
            "host",
            "user-agent",
            "accept",
            "accept-encoding",
            "authorization",
            "content-type",
            "content-length",
        ]
        assert egress.last.header("authorization") == f"Bearer {VENDOR_KEY}"
        assert egress.last.header("user-agent") == "conductor"
        assert orjson.loads(egress.last.body) == {
            "model": "ok",
            "messages": [{"role": "user", "content": "ciao"}],
            "temperature": 0.5,
            "tools": [{"type": "function", "function": {"name": "f"}}],
        }
        for word in (b"req-private", b"client-key", b"10.0.0.1", b"00-private", b"decision-1"):
            assert word not in egress.vendor.received


@pytest.mark.parametrize("stream", [False, True])
async def test_two_requests_with_the_same_body_are_the_same_bytes_at_the_vendor(
    stream: bool,
) -> None:
    body = chat_body("same", stream=stream, temperature=0.25, seed=7, stop=["a", "b"])
    seen = []
    async with running_egress("ok") as egress:
        for number in range(3):
            async with egress.post(body, "ok", **{"x-request-id": f"r{number}"}) as response:
                await response.read()
            host = f"Host: {egress.last.header('host')}".encode()
            seen.append(egress.vendor.received[sum(len(raw) for raw in seen) :])
        assert host in seen[0]
        assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("model", ["gpt-5.4", "o1", "anthropic/claude-x", "ft:gpt-3.5-turbo:a:b"])
async def test_a_models_name_changes_neither_the_way_nor_the_parameters_a_vendor_gets(
    model: str,
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    async with running_egress(model) as egress:
        answer = await egress.ask(model, tools=tools, reasoning_effort="low", n=1)
        assert answer.status == 200
        assert egress.last.path == "/v1/chat/completions"
        sent = orjson.loads(egress.last.body)
        assert (sent["model"], sent["reasoning_effort"], sent["n"]) == (model, "low", 1)


async def test_every_permitted_field_arrives_unchanged() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    fields = {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_object"},
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 5,
        "stop": ["x"],
        "n": 2,
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 2,
        "presence_penalty": 0.1,
        "frequency_penalty": -0.1,
        "logit_bias": {"50256": -100},
        "parallel_tool_calls": False,
        "reasoning_effort": "high",
    }
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "t"}], "name": "n"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    async with running_egress("ok") as egress:
        body = orjson.dumps({"messages": messages, **fields})
        async with egress.post(body, "ok") as response:
            assert response.status == 200
        sent = orjson.loads(egress.last.body)
        assert {name: sent[name] for name in fields} == fields
        assert sent["messages"][1:2] == messages[1:2]
        assert sent["messages"][2]["tool_calls"] == [call]
        assert sent["messages"][3] == messages[3]


async def test_a_redirect_is_a_failure_and_is_not_followed() -> None:
    async with running_egress("status-307", "status-302") as egress:
        for model in ("status-307", "status-302"):
            assert (await egress.ask(model)).failure == "malformed"
        assert len(egress.vendor.requests) == 2


# -- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_come_back_plain_and_streamed_with_usage(stream: bool) -> None:
    async with running_egress("ok", "echo", "utf8-splits", "refusal") as egress:
        answer = await egress.ask("ok", stream=stream)
        assert answer.status == 200
        assert answer.text.startswith("[simulated] A canned answer of ok")
        assert (
            await egress.ask("utf8-splits", stream=stream)
        ).text == "caffè 日本語 👩‍👩‍👧 naïve 𝛑"
        refused = await egress.ask("refusal", stream=stream)
        assert refused.failure is None
        assert b'"finish_reason":"content_filter"' in refused.body
        last = answer.events[-1] if stream else orjson.loads(answer.body)
        assert last["usage"]["completion_tokens"] > 0
        if stream:
            assert answer.done
            assert orjson.loads(egress.last.body)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_come_back_whole(stream: bool) -> None:
    async with running_egress("tool-call") as egress:
        answer = await egress.ask("tool-call", stream=stream)
        parts = answer.events or [orjson.loads(answer.body)]
        choices = [choice for part in parts for choice in part["choices"]]
        bodies = [choice.get("delta") or choice.get("message") or {} for choice in choices]
        calls = [call for body in bodies for call in body.get("tool_calls") or ()]
        arguments = "".join(call["function"]["arguments"] for call in calls)
        assert (calls[0]["id"], orjson.loads(arguments)) == ("call_simulated", {"city": "Turin"})
        assert choices[-1]["finish_reason"] == "tool_calls"


async def test_a_stream_whose_choices_all_finished_needs_no_done() -> None:
    async with running_egress("no-done") as egress:
        answer = await egress.ask("no-done", stream=True)
        assert answer.done
        assert answer.failure is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_usage_that_the_vendor_never_stated_is_not_made_up(stream: bool) -> None:
    async with running_egress("no-usage") as egress:
        answer = await egress.ask("no-usage", stream=stream)
        assert answer.text.startswith("[simulated]")
        assert b'"usage"' not in answer.body


async def test_a_model_that_repeats_itself_is_not_cut_off() -> None:
    async with running_egress("long-300") as egress:
        answer = await egress.ask("long-300", stream=True)
        assert (answer.text, answer.done) == ("word " * 300, True)


async def test_no_header_of_the_vendor_comes_back() -> None:
    async with running_egress("ok") as egress:
        answer = await egress.ask("ok")
        assert not any(name.lower() == "x-simulated" for name in answer.headers)


# -- failures ---------------------------------------------------------------------------------

EITHER = {
    "cut-before-head": "cut",
    "empty": "malformed",
    "malformed-json": "malformed",
    "malformed-sse": "malformed",
    "error-in-band": "server_error",
    "huge": "malformed",
    "status-500": "server_error",
    "status-503": "overloaded",
    "status-529": "overloaded",
    "status-401": "auth",
    "status-403": "auth",
    "status-404": "server_error",
    "status-422": "bad_request",
    "status-429-retry-7": "rate_limited",
    "context-length": "context_length",
}
PLAIN = {**EITHER, "cut-before-body": "cut", "cut-mid-stream": "cut", "end-mid-stream": "cut"}
STREAMED = {
    **EITHER,
    "cut-before-body": "cut",
    "cut-mid-stream": "cut",
    "end-mid-stream": "cut",
    "empty": "cut",
}


@pytest.mark.parametrize("stream", [False, True])
async def test_every_fault_of_a_vendor_has_its_name_and_is_asked_for_once(stream: bool) -> None:
    faults = STREAMED if stream else PLAIN
    async with running_egress(*faults) as egress:
        for asked, (model, failure) in enumerate(faults.items(), start=1):
            answer = await egress.ask(model, stream=stream)
            assert (model, answer.failure) == (model, failure)
            assert (model, answer.done) == (model, False)
            assert (model, len(egress.vendor.requests)) == (model, asked)
            assert b"simulated" not in answer.body.replace(b"[simulated]", b"").replace(
                b"chatcmpl-simulated", b""
            ).replace(b'"system_fingerprint":"simulated"', b"")


async def test_a_failure_before_the_first_byte_has_a_real_status_and_the_vendors_retry_time() -> (
    None
):
    async with running_egress("status-429-retry-7", "status-503", "context-length") as egress:
        for stream in (False, True):
            limited = await egress.ask("status-429-retry-7", stream=stream)
            assert (limited.status, limited.headers["Retry-After"]) == (429, "7")
            assert (await egress.ask("status-503", stream=stream)).status == 503
            overflow = await egress.ask("context-length", stream=stream)
            assert overflow.status == 400
            assert b"maximum context length is 8192 tokens" in overflow.body
            assert b"resulted in 9000 tokens" in overflow.body


@pytest.mark.parametrize("model", ["cut-mid-stream", "end-mid-stream", "error-in-band"])
async def test_a_failure_mid_stream_is_told_in_band_and_never_followed_by_done(model: str) -> None:
    async with running_egress(model) as egress:
        answer = await egress.ask(model, stream=True)
        assert answer.status == 200
        assert answer.text == "[simulated] A "
        assert not answer.done
        assert not any(
            choice["finish_reason"]
            for event in answer.events
            for choice in event.get("choices", ())
        )


async def test_an_end_that_the_library_makes_up_does_not_reach_the_caller() -> None:
    async with running_egress("empty", "finish-one") as egress:
        empty = await egress.ask("empty", stream=True)
        assert (empty.status, empty.failure) == (502, "cut")
        half = await egress.ask("finish-one", stream=True, n=2)
        assert (half.status, half.failure, half.done) == (200, "cut", False)
        alone = await egress.ask("finish-one", stream=True, n=1)
        assert (alone.failure, alone.done) == (None, True)


async def test_each_timer_fires_and_hangs_up() -> None:
    models = ("stall", "slow-first-byte-60000", "stall-mid-stream", "slow-chunks-500")
    for limits, model, stream, failure in (
        (SILENT, "stall", False, "first_byte_timeout"),
        (SILENT, "slow-first-byte-60000", True, "first_byte_timeout"),
        (IDLE, "stall-mid-stream", True, "idle_timeout"),
        (IDLE, "stall-mid-stream", False, "idle_timeout"),
        (TOTAL, "slow-chunks-500", True, "total_timeout"),
        (TOTAL, "stall-mid-stream", False, "total_timeout"),
    ):
        async with running_egress(*models, limits=limits) as egress:
            answer = await egress.ask(model, stream=stream)
            assert (model, answer.failure) == (model, failure)
            await until(lambda e=egress: e.last.aborted)


@pytest.mark.parametrize("stream", [False, True])
async def test_odd_json_of_a_vendor_is_a_failure_with_a_name_or_a_proper_answer(
    stream: bool,
) -> None:
    models = ("lone-surrogate", "huge-number", "deep-json", "no-choices")
    async with running_egress(*models) as egress:
        for model in models:
            answer = await egress.ask(model, stream=stream)
            assert answer.status in (200, 502)
            named = answer.failure in ("malformed", "server_error", "cut")
            assert named or answer.text.startswith("[simulated]")
            assert answer.done == (stream and answer.failure is None)


async def test_a_vendor_that_is_not_there_is_refused() -> None:
    async with running_egress("ok") as egress:
        await egress.vendor.close()
        for stream in (False, True):
            answer = await egress.ask("ok", stream=stream)
            assert (answer.status, answer.failure) == (502, "refused")


# -- a caller that leaves ---------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["stall", "stall-mid-stream", "slow-chunks-1000"])
async def test_a_caller_that_leaves_aborts_the_vendors_call_within_a_second(
    model: str, stream: bool
) -> None:
    async with running_egress(model) as egress:
        reader, writer = await egress.open(chat_body(stream=stream), model)
        await until(lambda: egress.vendor.requests)
        if stream and model != "stall":
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        await until(lambda: egress.last.aborted, WITHIN_S)
        await until(lambda: egress.vendor.open_connections == 0, WITHIN_S)


async def test_a_caller_that_reads_slowly_and_leaves_aborts_the_vendors_call() -> None:
    async with running_egress("long-100000") as egress:
        _, writer = await egress.open(chat_body(stream=True), "long-100000")
        await until(lambda: egress.vendor.requests)
        await asyncio.sleep(0.2)
        writer.close()
        await until(lambda: egress.last.aborted, WITHIN_S)


async def test_a_caller_that_leaves_before_its_body_is_whole_sends_nothing() -> None:
    async with running_egress("ok") as egress:
        _, writer = await egress.open(chat_body(), "ok", cut=5)
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.sleep(0.05)
        assert egress.vendor.received == b""


async def test_a_hundred_streams_at_once_all_end_well_and_leave_no_call_open() -> None:
    async with running_egress("long-5", "stall") as egress:
        answers = await asyncio.gather(*(egress.ask("long-5", stream=True) for _ in range(100)))
        assert all(answer.done for answer in answers)
        assert {answer.text for answer in answers} == {"word " * 5}
        gc.collect()
        await asyncio.sleep(0)
        assert len([task for task in asyncio.all_tasks() if "chat" in str(task.get_coro())]) == 0


# -- serve's side -----------------------------------------------------------------------------


async def test_serve_calls_a_vendor_through_egress() -> None:
    async with running_egress("ok", "cut-mid-stream") as egress:
        caller = HttpCaller(egress.socket)
        worker = remote_worker(1)
        for stream in (False, True):
            body = chat_body(stream=stream)
            call = Call("r1", body, stream, egress.token(body, "ok"))
            async with caller.call(worker, call) as reply:
                if stream:
                    chunks = [chunk async for chunk in reply.events()]
                    assert chunks[-1]["usage"]["completion_tokens"] > 0
                else:
                    assert (await reply.json())["choices"][0]["finish_reason"] == "stop"
        with pytest.raises(WorkerError) as caught:
            async with caller.call(worker, call) as reply:
                pass
        assert (caught.value.failure, caught.value.detail) == (Failure.PERMIT, "replay")
        body = chat_body(stream=True)
        call = Call("r2", body, True, egress.token(body, "cut-mid-stream"))
        with pytest.raises(WorkerError) as caught:
            async with caller.call(remote_worker(1, "cut-mid-stream"), call) as reply:
                async for _ in reply.events():
                    pass
        assert (caught.value.failure, caught.value.began) == (Failure.CUT, True)
        await caller.close()


async def test_the_link_asks_for_the_epoch_once_until_it_is_told_to_forget() -> None:
    async with running_egress("ok") as egress:
        link = EgressLink(egress.socket)
        epochs = await asyncio.gather(*(link.epoch() for _ in range(50)))
        assert set(epochs) == {egress.gate.epoch}
        egress.gate.epoch = "f" * 32
        assert await link.epoch() == epochs[0]
        link.invalidate()
        assert await link.epoch() == "f" * 32
        egress.gate.epoch = "not an epoch"
        link.invalidate()
        with pytest.raises(WorkerError, match="egress_down"):
            await link.epoch()
    with pytest.raises(WorkerError, match="egress_down"):
        await link.epoch()


# -- the provider itself ----------------------------------------------------------------------


async def test_litellm_proves_at_start_that_it_uses_the_exchange() -> None:
    workers = (remote_worker(9, "ok"), remote_worker(9, "gpt-5.4"), remote_worker(9, "a/b"))
    async with LiteLLMProvider(workers, {}) as provider:
        await provider.prove()


async def test_a_provider_whose_connections_cannot_be_held_is_refused_at_start() -> None:
    worker = remote_worker(9)
    endpoint = replace(worker.endpoint, provider="bedrock")  # type: ignore[type-var]
    with pytest.raises(StartError, match="base_url"):
        LiteLLMProvider((replace(worker, endpoint=endpoint),), {})


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8", "1.107.0"])
def test_barred_versions_are_never_imported(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    monkeypatch.setitem(__import__("sys").modules, "litellm", None)
    with pytest.raises(StartError, match="barred"):
        LiteLLMProvider((), {})


async def test_a_second_request_in_one_exchange_is_not_sent() -> None:
    import httpx

    from conductor.egress.exchange import Exchange, memory, origin_of

    asked: list[str] = []
    origin = origin_of("http://127.0.0.1:9/v1")
    exchange = Exchange(memory(asked), remote_worker(9), origin, "k", stream=False)
    request = httpx.Request("POST", "http://127.0.0.1:9/v1/chat/completions", content=b"{}")
    await exchange.handle_async_request(request)
    with pytest.raises(httpx.TransportError):
        await exchange.handle_async_request(request)
    assert asked == ["POST"]


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:10/v1", "https://127.0.0.1:9/v1", "http://localhost:9/", "http://[::1]:9/"],
)
async def test_an_exchange_reaches_no_other_origin(url: str) -> None:
    import httpx

    from conductor.egress.exchange import Exchange, memory, origin_of

    asked: list[str] = []
    origin = origin_of("http://127.0.0.1:9/v1")
    exchange = Exchange(memory(asked), remote_worker(9), origin, "k", stream=False)
    with pytest.raises(httpx.TransportError):
        await exchange.handle_async_request(httpx.Request("POST", url, content=b"{}"))
    assert asked == []
