"""Chat requests: hostile ones are a 400, routing fields go nowhere, workers get exact bytes."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.chat.jsonbody import MAX_DEPTH, MAX_VALUES, read_object
from conductor.chat.messages import MAX_QUESTION_CHARS
from conductor.chat.request import ChatRequest, outgoing, parse_chat
from conductor.errors import ApiError, BadRequest

HELLO = [{"role": "user", "content": "Hello"}]
PIXEL = "data:image/png;base64,aGk="
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def raw(**fields: Any) -> bytes:
    return json.dumps({"model": "conductor", "messages": HELLO, **fields}).encode()


def parse(**fields: Any) -> ChatRequest:
    return parse_chat(raw(**fields))


def refused(data: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse_chat(data)
    assert caught.value.status == 400
    assert len(caught.value.message) > 15
    return caught.value


def sent(request: ChatRequest, remote: bool = False, **more: Any) -> dict[str, Any]:
    options = {"model": "m", "stream": False, **more}
    body: dict[str, Any] = json.loads(outgoing(request, remote=remote, **options))
    return body


# -- hostile JSON -----------------------------------------------------------------------------

HOSTILE = {
    "nothing": b"",
    "white space": b" \n ",
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "cut off": b'{"model":',
    "two values": b"{} {}",
    "a trailing comma": b'{"model":"x",}',
    "single quotes": b"{'model':'x'}",
    "a comment": b'{/**/"model":"x"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"model":"x"}'.encode("utf-16"),
    "UTF-16 without mark": '{"model":"x"}'.encode("utf-16-be"),
    "UTF-32": '{"model":"x"}'.encode("utf-32"),
    "Latin-1": '{"model":"é"}'.encode("latin-1"),
    "overlong UTF-8": b'{"model":"\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"model":"\xed\xa0\x80"}',
    "a lone surrogate": b'{"model":"\\ud800"}',
    "a lone low surrogate": b'{"model":"\\udc00"}',
    "surrogates in the wrong order": b'{"model":"\\udc00\\ud800"}',
    "a lone surrogate in a key": b'{"\\ud800":1}',
    "NaN": b'{"temperature":NaN}',
    "infinity": b'{"temperature":-Infinity}',
    "1e400": b'{"temperature":1e400}',
    "a number of 5000 digits": b'{"seed":' + b"9" * 5000 + b"}",
    "a number past 64 bits": b'{"seed":18446744073709551616}',
    "a negative one": b'{"seed": -9223372036854775809 }',
    "one deep in an array": b'{"x":[[1,99999999999999999999]]}',
    "a leading zero": b'{"seed":007}',
    "hexadecimal": b'{"seed":0x10}',
    "a raw NUL": b'{"model":"a\x00b"}',
    "an escaped NUL": b'{"model":"a\\u0000b"}',
    "an escaped NUL after a backslash": b'{"model":"a\\\\\\u0000b"}',
    "an escaped NUL in a key": b'{"a\\u0000":1}',
    "a name twice": b'{"model":"a","model":"b"}',
    "a name twice, escaped": b'{"model":"a","mod\\u0065l":"b"}',
    "a name twice, deep": b'{"x":[{"y":1,"y":{"z":2}}]}',
    "a million lists": b'{"x":[' + b"[]," * 1_000_000 + b"[]]}",
    "a million strings": b'{"x":[' + b'"",' * 1_000_000 + b'""]}',
    "a million quotes": b'"' * 1_000_000,
    "100,000 levels of lists": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 levels of objects": b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
    "levels never closed": b"[" * 10_000_000,
    "one level too deep": b'{"x":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    "backslashes": b'{"model":"' + b"\\" * 99_999,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_a_400_that_says_what_to_do(name: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_object(HOSTILE[name])
    assert refused(HOSTILE[name]).message == caught.value.message
    assert caught.value.type == "invalid_request_error"


def test_the_message_names_the_place_but_never_the_content() -> None:
    for data in (b'{"model": canary}', b'{"canary":1,"canary":2}', raw(seed="canary")):
        assert "canary" not in refused(data).message
    assert "line 2, column 9" in refused(b'{\n"model":canary}').message
    assert "byte order mark" in refused(b"\xef\xbb\xbf{}").message
    assert "UTF-16" in refused('{"a":1}'.encode("utf-16")).message


FINE = {
    "pairs of surrogates": b'"\\ud83d\\ude00"',
    "a backslash and u0000": b'"\\\\u0000"',
    "quotes, colons and commas in text": b'"\\":,[{\\\\\\" \\\\"',
    "the largest integers": b"[18446744073709551615,-9223372036854775808]",
    "long fractions": b"[0.1000000000000000055511151231257827,1e22,1.5e300,12345678901234567890.5]",
    "long digits in text": b'"99999999999999999999999"',
    "empty strings": b'["",{"":""}]',
    "the deepest nesting": b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1),
    "many values": b"[" + b"0," * (MAX_VALUES - 100) + b"0]",
    "the same name in two objects": b'[{"a":1},{"a":1},{"a":{"a":1}}]',
}


@pytest.mark.parametrize("name", FINE)
def test_odd_but_proper_json_passes_unchanged(name: str) -> None:
    value = FINE[name]
    request = parse_chat(raw()[:-1] + b',"x":' + value + b"}")
    assert request.body["x"] == json.loads(value)
    assert sent(request)["x"] == json.loads(value)


def test_a_long_prompt_with_every_kind_of_escape_comes_through() -> None:
    text = ('"\\\\"\\u0001\n{[:,"' * 40_000) + "é😀"
    assert (
        parse(messages=[{"role": "user", "content": text}]).body["messages"][0]["content"] == text
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.booleans(), st.sampled_from([None, 2]))
def test_every_proper_value_passes_however_it_is_written(
    value: Any, ascii: bool, indent: int | None
) -> None:
    data = json.dumps(
        {"model": "m", "messages": HELLO, "unknown": value}, ensure_ascii=ascii, indent=indent
    ).encode()
    assert parse_chat(data).body.get("unknown") == value


@given(
    st.binary(max_size=200) | st.text(alphabet='{}[]":,\\u0d8e1. -', max_size=60).map(str.encode)
)
def test_any_bytes_are_a_request_or_a_400(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        parse_chat(data)


FIELDS = st.sampled_from(
    ["model", "messages", "stream", "stream_options", "n", "tools", "functions", "stop", "role",
     "content", "type", "text", "tool_calls", "id", "function", "name", "arguments", "logit_bias",
     "response_format", "json_schema", "image_url", "url", "modalities", "max_tokens",
     "tool_call_id", "function_call", "audio", "include_usage", "temperature"]
)  # fmt: skip
SHAPES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 9)
    | st.sampled_from(["user", "tool", "assistant", "text", "function", "json_schema", PIXEL]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=8),
    max_leaves=30,
)


@given(st.dictionaries(FIELDS, SHAPES, max_size=8), st.lists(SHAPES, max_size=3))
def test_any_shape_is_a_request_that_can_be_sent_or_a_400(
    fields: dict[str, Any], messages: list[Any]
) -> None:
    for body in (fields, {**fields, "model": "m", "messages": [*HELLO, *messages]}):
        try:
            request = parse_chat(json.dumps(body).encode())
        except BadRequest:
            continue
        sent(request, remote=True, stream=True)
        sent(request, remote=False)


# -- fields -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("model", None, "model"),
        ("model", "", "model"),
        ("model", 7, "model"),
        ("model", "x" * 257, "model"),
        ("model", "a\nb", "model"),
        ("messages", None, "messages"),
        ("messages", [], "messages"),
        ("messages", "hi", "messages"),
        ("messages", ["hi"], "messages[0]"),
        ("messages", [{}], "messages[0].role"),
        ("messages", [{"role": "robot", "content": "x"}], "messages[0].role"),
        ("messages", [{"role": ["user"], "content": "x"}], "messages[0].role"),
        ("messages", [{"role": "user"}], "messages[0].content"),
        ("messages", [{"role": "user", "content": None}], "messages[0].content"),
        ("messages", [{"role": "user", "content": []}], "messages[0].content"),
        ("messages", [{"role": "user", "content": 7}], "messages[0].content"),
        ("messages", [{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ("messages", [{"role": "user", "content": [{"type": "text"}]}],
         "messages[0].content[0].text"),
        ("messages", [*HELLO, {"role": "assistant", "content": None}], "messages[1].content"),
        ("messages", [{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ("messages", [{"role": "user", "content": "x", "tool_calls": [CALL]}],
         "messages[0].tool_calls"),
        ("messages", [{"role": "assistant", "tool_calls": [{"id": "c"}]}],
         "messages[0].tool_calls[0].function"),
        ("messages", [{"role": "assistant", "tool_calls": [
            {"id": "c", "function": {"name": "f", "arguments": {}}}]}],
         "messages[0].tool_calls[0].function.arguments"),
        ("messages", [{"role": "user", "content": "x", "name": 7}], "messages[0].name"),
        ("stream", "yes", "stream"),
        ("stream", 1, "stream"),
        ("stream_options", {"include_usage": True}, "stream_options"),
        ("n", 0, "n"),
        ("n", 9, "n"),
        ("n", True, "n"),
        ("n", 1.5, "n"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", "10", "max_tokens"),
        ("max_completion_tokens", -1, "max_completion_tokens"),
        ("temperature", "hot", "temperature"),
        ("temperature", 2.1, "temperature"),
        ("temperature", True, "temperature"),
        ("top_p", -0.1, "top_p"),
        ("stop", ["x"] * 17, "stop"),
        ("stop", [1], "stop"),
        ("logit_bias", {"5": 1000}, "logit_bias"),
        ("logit_bias", [], "logit_bias"),
        ("top_logprobs", 3, "top_logprobs"),
        ("logprobs", 1, "logprobs"),
        ("response_format", "json", "response_format"),
        ("response_format", {"type": "xml"}, "response_format.type"),
        ("response_format", {"type": ["text"]}, "response_format.type"),
        ("response_format", {"type": "json_schema"}, "response_format.json_schema"),
        ("tools", {}, "tools"),
        ("tools", ["f"], "tools[0]"),
        ("tools", [{"type": "function"}], "tools[0].function"),
        ("tools", [{"function": {"name": "f"}}], "tools[0].type"),
        ("functions", [{}], "functions[0]"),
        ("tool_choice", 7, "tool_choice"),
        ("seed", "x", "seed"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(field: str, value: Any, param: str) -> None:
    assert refused(raw(**{field: value})).param == param


def test_null_means_not_given() -> None:
    nulls = dict.fromkeys(["stream", "stream_options", "n", "tools", "stop", "temperature"])
    request = parse(**nulls)
    assert set(request.body) == {"model", "messages"}
    assert not request.stream and not request.one_step


def test_stream_options_need_a_stream_and_tell_whether_usage_is_shown() -> None:
    assert parse(stream=True, stream_options={"include_usage": True}).include_usage
    assert not parse(stream=True).include_usage
    options = {"include_usage": "yes"}
    error = refused(raw(stream=True, stream_options=options))
    assert error.param == "stream_options.include_usage"


def test_everything_the_api_knows_is_accepted() -> None:
    request = parse(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "4"}]},
            {"role": "assistant", "refusal": "no"},
            {"role": "function", "name": "f", "content": "x"},
        ],
        tools=[TOOL, {"type": "custom", "custom": {"name": "c"}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
        n=2, seed=-5, logprobs=True, top_logprobs=3, logit_bias={"50256": -100}, stop=["\n"],
        max_completion_tokens=50, max_tokens=60, temperature=0, top_p=1, user="u",
        metadata={"k": "v"}, reasoning_effort="low", frequency_penalty=0.5, presence_penalty=-2,
    )  # fmt: skip
    assert request.max_tokens == 50 and request.one_step and request.ignored == ()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}},
        {"type": "image_url", "image_url": "http://169.254.169.254/"},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image_url", "image_url": {"url": " DATA:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": 7},
        {"type": "video_url", "video_url": {"url": "https://example.com/x"}},
        {"type": "image_url", "image_url": {"url": PIXEL, "uri": "https://example.com/x"}},
        {"type": "image", "image": "https://example.com/x"},
        {"type": "file", "file": {"sources": [{"at": "\tftp://example.com/x"}]}},
        {"type": "text", "text": "x", "image_url": "https://example.com/x"},
    ],
)
def test_a_part_that_would_make_a_worker_fetch_something_is_refused(part: Any) -> None:
    error = refused(raw(messages=[{"role": "user", "content": [part]}]))
    assert "nothing is fetched" in error.message
    assert error.param == "messages[0].content[0]"


# -- what it says about the request -----------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [TOOL]},
        {"functions": [{"name": "f"}]},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
        {"n": 2},
        {"audio": {"voice": "x"}},
        {"modalities": ["text", "audio"]},
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
        {"messages": [{"role": "assistant", "tool_calls": [CALL]}, *HELLO]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": PIXEL}]}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_only_one_worker_can_answer_is_one_step(fields: dict[str, Any]) -> None:
    assert parse(**fields).one_step


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": []},
        {"n": 1},
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"logprobs": False},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        {"stop": "x", "temperature": 0.5, "user": "u"},
    ],
    ids=str,
)
def test_plain_text_may_take_several_steps(fields: dict[str, Any]) -> None:
    assert not parse(**fields).one_step


def test_the_question_is_the_last_user_message_and_bounded() -> None:
    def ask(*messages: Any) -> str:
        return parse(messages=list(messages)).question

    user = {"role": "user", "content": "first"}
    parts = {"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]}
    assistant = {"role": "assistant", "content": "answer"}
    assert ask(user, assistant) == "first"
    assert ask(user, assistant, parts) == "a\nb"
    assert ask({"role": "system", "content": "sys"}) == "sys"
    assert len(ask({"role": "user", "content": "x" * 50_000})) == MAX_QUESTION_CHARS


def test_prompt_bytes_count_text_and_tools_but_no_pictures() -> None:
    picture = PIXEL + "A" * 100_000
    parts = [{"type": "text", "text": "é" * 10}, {"type": "image_url", "image_url": picture}]
    assert parse(messages=[{"role": "user", "content": parts}]).prompt_bytes == 20
    assert parse(tools=[TOOL]).prompt_bytes > 5 + 60


# -- routing fields ---------------------------------------------------------------------------

STEERING = {
    "fallbacks": ["cloud"],
    "api_base": "https://evil.example",
    "base_url": "https://evil.example",
    "API-Base": "https://evil.example",
    "api_key": "sk-x",
    "models": ["a"],
    "route": "fallback",
    "provider": {"order": ["x"]},
    "router": "x",
    "custom_llm_provider": "openai",
    "mock_response": "x",
    "extra_headers": {"Authorization": "x"},
    "extra_body": {"api_base": "x"},
    "deployment_id": "x",
    "num_retries": 99,
    "timeout": 0.1,
    "litellm_metadata": {},
    "litellm_credential_name": "x",
    "aws_access_key_id": "x",
    "vertex_project": "x",
    "x-conductor-worker": "x",
    "conductor_label": "public",
    "label": "public",
    "kv_transfer_params": {"remote_host": "evil.example"},
}


@pytest.mark.parametrize("remote", [True, False])
def test_routing_fields_are_told_and_go_nowhere(remote: bool) -> None:
    request = parse(**STEERING)
    body = outgoing(request, model="m", stream=True, remote=remote)
    plain = outgoing(parse(), model="m", stream=True, remote=remote)
    assert body == plain
    assert len(request.ignored) >= len(STEERING) - 6  # some share a beginning or a spelling
    assert {"fallbacks", "api_base", "litellm_*", "aws_*"} <= set(request.ignored)


def test_what_is_recorded_of_a_routing_field_holds_no_text_of_the_client() -> None:
    assert parse(**{"x-canary-in-a-name": 1, "litellm_canary": 2}).ignored == ("litellm_*", "x_*")


# -- what workers get -------------------------------------------------------------------------


def test_the_bytes_are_canonical_and_do_not_depend_on_the_order_of_fields() -> None:
    one = parse_chat(b'{"model":"a","messages":[{"role":"user","content":"x"}],"seed":1}')
    two = parse_chat(b'{ "seed":1,"messages":[{"content":"x","role":"user"}],"model":"b"}')
    for remote in (True, False):
        assert outgoing(one, model="m", stream=True, remote=remote) == outgoing(
            two, model="m", stream=True, remote=remote
        )


def test_a_remote_worker_gets_only_what_the_api_defines_and_not_who_asks() -> None:
    message = {"role": "user", "content": "x", "cache_control": {}, "reasoning_content": "r"}
    request = parse(
        messages=[message],
        user="ann",
        metadata={"case": "7"},
        safety_identifier="ann",
        store=True,
        service_tier="auto",
        prompt_cache_key="ann",
        unknown={"x": 1},
        temperature=0.5,
    )
    assert sent(request, remote=True) == {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "stream": False,
        "temperature": 0.5,
    }


def test_a_local_worker_also_gets_what_is_unknown_here() -> None:
    body = sent(parse(unknown={"x": 1}, top_k=40))
    assert body["unknown"] == {"x": 1} and body["top_k"] == 40


def test_usage_is_always_asked_for_on_streams_and_never_else() -> None:
    for wish in ({}, {"stream": True, "stream_options": {"include_usage": False}}):
        request = parse(**wish)
        assert sent(request, stream=True)["stream_options"] == {"include_usage": True}
        assert "stream_options" not in sent(request, stream=False)


def test_developer_is_system_for_local_workers() -> None:
    request = parse(messages=[{"role": "developer", "content": "d"}, *HELLO])
    assert sent(request)["messages"][0]["role"] == "system"
    assert sent(request, remote=True)["messages"][0]["role"] == "developer"
    assert request.body["messages"][0]["role"] == "developer"


def test_the_tighter_token_limit_goes_out_under_the_name_the_worker_knows() -> None:
    old, new, none = parse(max_tokens=50), parse(max_completion_tokens=50), parse()
    assert sent(old, max_tokens=20)["max_tokens"] == 20
    assert sent(old, max_tokens=90)["max_tokens"] == 50
    assert sent(new)["max_tokens"] == 50 and "max_completion_tokens" not in sent(new)
    assert sent(new, remote=True)["max_completion_tokens"] == 50
    assert "max_tokens" not in sent(new, remote=True)
    assert sent(none, max_tokens=7, remote=True)["max_tokens"] == 7
    assert "max_tokens" not in sent(none)


def test_a_step_of_a_plan_replaces_the_messages() -> None:
    step = [{"role": "developer", "content": "Only this."}]
    body = sent(parse(messages=[{"role": "user", "content": "canary"}]), messages=step)
    assert body["messages"] == [{"role": "system", "content": "Only this."}]


def test_a_step_without_messages_does_not_fall_back_to_the_clients() -> None:
    assert sent(parse(), messages=[])["messages"] == []


def test_a_32_mib_body_is_read() -> None:
    picture = PIXEL + base64.b64encode(bytes(24 << 20)).decode()[: (32 << 20) - 300]
    parts = [{"type": "image_url", "image_url": {"url": picture}}]
    assert parse(messages=[{"role": "user", "content": parts}]).prompt_bytes == 0


def test_errors_of_the_tree_carry_an_envelope() -> None:
    error: ApiError = refused(raw(n=0))
    assert error.envelope()["error"]["param"] == "n"
    assert error.envelope()["error"]["code"] == "invalid_value"
