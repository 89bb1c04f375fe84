"""Shaping answers: whatever a back-end says, clients see one form, streamed or not.

The golden cases hold the same answer as a back-end streams it and as it gives it plain, and what
must come out of each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from conductor.core import Body, Failure, Usage
from conductor.errors import WorkerError
from conductor.run.plain import held_back, held_back_chunks, shape_plain
from conductor.run.stream import MAX_CHOICES, ChunkShaper
from conductor.run.toolcalls import MAX_CALLS

GOLDEN = Path(__file__).parent.parent / "golden" / "stream"
CASES = sorted(path.stem for path in GOLDEN.glob("*.txt"))
ID, CREATED, MODEL = "chatcmpl-1", 7, "conductor"


class Case:
    def __init__(self, name: str) -> None:
        text = (GOLDEN / f"{name}.txt").read_text()
        _, streamed, plain, out_streamed, out_plain = [
            section.split("\n", 1)[1] for section in ("title\n" + text).split("-----")
        ]
        self.upstream = [json.loads(line) for line in streamed.splitlines()]
        self.upstream_plain = json.loads(plain)
        self.streamed = [json.loads(line) for line in out_streamed.splitlines()]
        self.plain = [json.loads(line) for line in out_plain.splitlines()]


def stream(upstream: list[Body], include_usage: bool = True) -> list[Body]:
    shaper = ChunkShaper(ID, CREATED, MODEL, include_usage)
    return [out for chunk in upstream for out in shaper.feed(chunk)] + shaper.finish()


def chunk(delta: Any, finish: Any = None, index: Any = 0) -> Body:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def essence(answer: Body) -> Body:
    """What two modes must agree on: the official client keeps "" where plain answers say null."""
    out = json.loads(json.dumps(answer))
    for choice in out["choices"]:
        message = choice["message"]
        choice["message"] = {k: v for k, v in message.items() if v not in (None, "", [])}
        for call in choice["message"].get("tool_calls", []):
            call.pop("index", None)
        choice["logprobs"] = (choice.get("logprobs") or {}).get("content")
    return out


def assembled_by_the_official_client(chunks: list[Body]) -> Body:
    state: Any = ChatCompletionStreamState()
    for one in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(one))
    dumped: Body = state.current_completion_snapshot.model_dump(exclude_unset=True)
    for choice in dumped["choices"]:
        choice["message"].pop("parsed", None)
        for call in choice["message"].get("tool_calls") or []:
            call.get("function", {}).pop("parsed_arguments", None)
    return dumped


@pytest.mark.parametrize("name", CASES)
def test_the_streamed_answer_is_as_written(name: str) -> None:
    case = Case(name)
    *chunks, last = stream(case.upstream)
    assert [out["choices"] for out in chunks] == [[entry] for entry in case.streamed[:-1]]
    assert last["choices"] == [] and last["usage"] == case.streamed[-1]["usage"]


@pytest.mark.parametrize("name", CASES)
def test_the_plain_answer_is_as_written(name: str) -> None:
    case = Case(name)
    answer, _ = shape_plain(case.upstream_plain, ID, CREATED, MODEL)
    assert answer["choices"] == case.plain[:-1]
    assert answer["usage"] == case.plain[-1]["usage"]
    ChatCompletion.model_validate(answer, strict=True)


@pytest.mark.parametrize("name", [name for name in CASES if name != "custom-tool"])
def test_the_official_client_reads_the_same_from_both_modes(name: str) -> None:
    case = Case(name)
    chunks = stream(case.upstream)
    answer, _ = shape_plain(case.upstream_plain, ID, CREATED, MODEL)
    together = essence(assembled_by_the_official_client(chunks))
    expected = essence(answer)
    assert together["choices"] == expected["choices"]
    assert together["usage"] == expected["usage"]


@pytest.mark.parametrize("name", [name for name in CASES if name != "custom-tool"])
def test_an_answer_that_was_held_back_is_the_same_later_in_both_modes(name: str) -> None:
    answer, _ = shape_plain(Case(name).upstream_plain, ID, CREATED, MODEL)
    later = held_back(answer, MODEL, Usage(100, 23))
    assert later["choices"] == answer["choices"]
    assert later["usage"]["total_tokens"] == 123
    chunks = held_back_chunks(later)
    check_rules(chunks, True)
    together, expected = essence(assembled_by_the_official_client(chunks)), essence(later)
    assert together["choices"] == expected["choices"]
    assert together["usage"] == expected["usage"]


@pytest.mark.parametrize("include_usage", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_every_chunk_keeps_the_rules(name: str, include_usage: bool) -> None:
    chunks = stream(Case(name).upstream, include_usage)
    check_rules(chunks, include_usage)


def check_rules(chunks: list[Body], include_usage: bool) -> None:
    for out in chunks:
        head = (out["id"], out["created"], out["model"], out["object"])
        assert head == (ID, CREATED, MODEL, "chat.completion.chunk")
        if '"custom"' not in json.dumps(out):  # the client's types know no custom tools in streams
            ChatCompletionChunk.model_validate(out, strict=True)
    if include_usage:
        *chunks, last = chunks
        assert last["choices"] == [] and last["usage"]["total_tokens"] >= 0
        assert all(out["usage"] is None for out in chunks)
    else:
        assert all("usage" not in out for out in chunks)
    entries = [entry for out in chunks for entry in out["choices"]]
    for index in {entry["index"] for entry in entries}:
        own = [entry for entry in entries if entry["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert all(entry["finish_reason"] is None for entry in own[:-1])
        assert own[-1]["finish_reason"] in ("stop", "length", "tool_calls", "content_filter")
        assert own[-1]["delta"] == {}
        check_calls([call for e in own for call in e["delta"].get("tool_calls", [])])


def check_calls(deltas: list[Body]) -> None:
    seen: list[str] = []
    for delta in deltas:
        if delta["index"] == len(seen):
            seen.append(delta["id"])
            assert delta["type"] in ("function", "custom")
        else:
            assert 0 <= delta["index"] < len(seen)
            assert "id" not in delta
        payload = delta.get("function") or delta["custom"]
        assert all(isinstance(text, str) for text in payload.values())
    assert len(set(seen)) == len(seen)


# -- usage ------------------------------------------------------------------------------------


def test_usage_is_collected_whether_or_not_the_client_asked() -> None:
    shaper = ChunkShaper(ID, CREATED, MODEL, False)
    shaper.feed(chunk({"content": "a"}, "stop"))
    shaper.feed({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    shaper.finish()
    assert shaper.usage == Usage(3, 1)


def test_an_aborted_stream_is_billed_by_what_came_and_marked_estimated() -> None:
    shaper = ChunkShaper(ID, CREATED, MODEL, True, prompt_tokens=50)
    assert shaper.usage == Usage(50, 0, estimated=True)
    for _ in range(7):
        shaper.feed(chunk({"content": "a"}))
    assert shaper.usage == Usage(50, 7, estimated=True)
    shaper.feed(chunk({"content": "x" * 400}))
    assert shaper.usage == Usage(50, 102, estimated=True)


def test_estimates_count_tool_arguments_and_reasoning() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "x" * 400}}
    body = {"choices": [{"message": {"tool_calls": [call], "reasoning_content": "y" * 400}}]}
    _, usage = shape_plain(body, ID, CREATED, MODEL)
    assert usage == Usage(0, 200, estimated=True)


def test_the_last_of_several_usage_reports_counts() -> None:
    shaper = ChunkShaper(ID, CREATED, MODEL, True)
    for n in (1, 2, 3):
        usage = {"prompt_tokens": 3, "completion_tokens": n}
        shaper.feed({**chunk({"content": "a"}), "usage": usage})
    assert shaper.usage == Usage(3, 3)


def test_what_other_steps_used_is_added_for_the_client_only() -> None:
    shaper = ChunkShaper(ID, CREATED, MODEL, True)
    shaper.feed(chunk({"content": "a"}))
    shaper.feed({"usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    last = shaper.finish(earlier=Usage(100, 10))[-1]
    assert last["usage"] == {"prompt_tokens": 103, "completion_tokens": 11, "total_tokens": 114}
    assert shaper.usage == Usage(3, 1)


@pytest.mark.parametrize(
    "usage",
    [None, 7, [], {}, {"prompt_tokens": "9"}, {"prompt_tokens": -1}, {"prompt_tokens": True},
     {"prompt_tokens": 1, "completion_tokens": 1.5}, {"prompt_tokens": 1 << 60}],
)  # fmt: skip
def test_a_report_that_counts_nothing_is_no_report(usage: Any) -> None:
    shaper = ChunkShaper(ID, CREATED, MODEL, True)
    shaper.feed({**chunk({"content": "a"}), "usage": usage})
    assert shaper.usage == Usage(0, 1, estimated=True)


# -- broken and hostile back-ends -------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"choices": None},
        {"choices": {}},
        {"choices": ["x"]},
        {"choices": [{"delta": "text"}]},
        chunk({}, index="0"),
        chunk({}, index=-1),
        chunk({}, index=True),
        chunk({}, index=MAX_CHOICES),
        chunk({"tool_calls": {}}),
        chunk({"tool_calls": ["f"]}),
        chunk({"tool_calls": [{"index": n, "id": f"c{n}"} for n in range(MAX_CALLS + 1)]}),
    ],
    ids=range(12),
)
def test_what_is_no_chunk_is_malformed(bad: Body) -> None:
    with pytest.raises(WorkerError) as caught:
        ChunkShaper(ID, CREATED, MODEL, True).feed(bad)
    assert caught.value.failure is Failure.MALFORMED


@pytest.mark.parametrize(
    "bad",
    [{}, {"choices": []}, {"choices": "x"}, {"choices": [7]}, {"choices": [{"text": "x"}]}],
    ids=range(5),
)
def test_what_is_no_answer_is_malformed(bad: Body) -> None:
    with pytest.raises(WorkerError) as caught:
        shape_plain(bad, ID, CREATED, MODEL)
    assert caught.value.failure is Failure.MALFORMED


def test_a_stream_without_any_choice_is_malformed() -> None:
    shaper = ChunkShaper(ID, CREATED, MODEL, True)
    shaper.feed({"choices": [], "usage": {"prompt_tokens": 1}})
    with pytest.raises(WorkerError):
        shaper.finish()


def test_nothing_of_the_back_end_itself_is_passed_on() -> None:
    leaky = {
        **chunk({"content": "a"}),
        "id": "upstream-id",
        "model": "org/secret-model",
        "system_fingerprint": "fp",
        "provider": "vendor",
    }
    leaky["choices"][0]["stop_reason"] = 7
    assert "upstream" not in json.dumps(stream([leaky])) and "vendor" not in json.dumps(
        stream([leaky])
    )
    assert set(stream([leaky])[1]) == {"id", "object", "created", "model", "choices", "usage"}


def test_began_tells_content_from_a_mere_opening() -> None:
    shaper = ChunkShaper(ID, CREATED, MODEL, True)
    assert not shaper.began
    shaper.feed(chunk({"role": "assistant", "content": ""}))
    assert not shaper.began
    shaper.feed(chunk({"content": "a"}))
    assert shaper.began


def test_a_malformed_chunk_after_content_says_that_content_had_come() -> None:
    for bad in ({}, chunk("x"), chunk({"tool_calls": 7}), chunk({"tool_calls": [7]})):
        shaper = ChunkShaper(ID, CREATED, MODEL, True)
        shaper.feed(chunk({"content": "a"}))
        with pytest.raises(WorkerError) as caught:
            shaper.feed(bad)
        assert caught.value.began


def test_a_name_that_comes_late_is_sent_late() -> None:
    upstream = [
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "{"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "}"}}]}),
    ]
    answer = assembled_by_the_official_client(stream(upstream))
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": "{}"}


def told(*calls: Body) -> list[tuple[str, str]]:
    """Names and arguments of the calls that a stream of such fragments tells."""
    out = stream([chunk({"tool_calls": [call]}) for call in calls])
    check_rules(out, True)
    read = assembled_by_the_official_client(out)["choices"][0]["message"]["tool_calls"]
    return [(call["function"]["name"], call["function"]["arguments"]) for call in read]


def test_calls_without_arguments_are_told_apart_by_name() -> None:
    f = {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}
    g = {"index": 0, "id": "b", "function": {"name": "g"}}
    assert told(f, g) == [("f", ""), ("g", "")]


def test_a_fragment_finds_its_call_by_any_id_the_call_has_had() -> None:
    f = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "["}}
    g = {"index": 1, "id": "g", "function": {"name": "g", "arguments": "{}"}}
    second = {"index": 0, "id": "b", "function": {"arguments": "1"}}
    third = {"id": "b", "function": {"arguments": "]"}}
    assert told(f, second, g, third) == [("f", "[1]"), ("g", "{}")]


ARGUMENTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


@given(st.data(), st.lists(st.tuples(st.sampled_from("fgh"), ARGUMENTS), min_size=1, max_size=4))
def test_calls_survive_every_way_of_streaming_them(
    data: st.DataObject, calls: list[tuple[str, Any]]
) -> None:
    """Each call is cut anywhere and told by one of the manners of the field."""
    manner = data.draw(st.sampled_from(["proper", "no-ids", "index-0", "ids-only", "new-ids"]))
    upstream = []
    for place, (name, arguments) in enumerate(calls):
        text = json.dumps(arguments)
        cut = data.draw(st.integers(0, len(text)))
        for n, part in enumerate((text[:cut], text[cut:])):
            one: Body = {"function": {"arguments": part}}
            if n == 0:
                one["function"]["name"] = name
            if manner != "ids-only":
                one["index"] = 0 if manner == "index-0" else place
            if manner in ("ids-only", "index-0") or (manner == "proper" and n == 0):
                one["id"] = f"id-{place}"
            if manner == "new-ids":
                one["id"] = f"id-{place}-{n}"
            upstream.append(chunk({"tool_calls": [one]}))
    out = stream([*upstream, chunk({}, "stop")])
    check_rules(out, True)
    got = assembled_by_the_official_client(out)["choices"][0]
    assert got["finish_reason"] == "tool_calls"
    read = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in got["message"]["tool_calls"]
    ]
    assert read == calls


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.just(0.5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "delta", "message", "index", "content", "tool_calls", "function", "id",
             "name", "arguments", "finish_reason", "usage", "prompt_tokens", "logprobs", "custom",
             "role", "text", "input"]
        ),
        inner,
        max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(["choices", "usage"]), JUNK), max_size=4))
def test_junk_is_shaped_or_refused_but_never_crashes(chunks: list[Body]) -> None:
    try:
        check_no_crash = stream(chunks)
    except WorkerError:
        return
    assert check_no_crash


@given(JUNK)
def test_a_junk_choice_is_shaped_or_refused_in_both_modes(entry: Any) -> None:
    for shape in (
        lambda: stream([{"choices": [entry]}]),
        lambda: stream([chunk(entry)]),
        lambda: shape_plain({"choices": [entry]}, ID, CREATED, MODEL),
        lambda: shape_plain({"choices": [{"message": entry}]}, ID, CREATED, MODEL),
    ):
        try:
            shape()
        except WorkerError:
            continue
