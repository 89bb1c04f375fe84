"""What the simulated vendor does: a model name selects a behaviour, a behaviour is a list of acts.

After the idea of failoverbench: whoever wants a fault asks for the model that has it, so that one
server plays every vendor at once. Only the part after the last `:` counts (`frontier:status-503`),
and a name that is no fault answers normally. Everything is deterministic and nothing does I/O:
`vendor.py` plays the acts.

Left out on purpose: any resemblance to a model's ability. Answers are canned and say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import orjson

from conductor.simulated import answers as wire
from conductor.simulated import faults
from conductor.simulated.acts import Acts, Send, Wait, answer, canned, deltas, plain, send
from conductor.simulated.answers import Json, Question


def respond(method: str, path: str, body: bytes) -> Acts:
    """The acts that answer one HTTP request."""
    if method == "GET" and path in ("/health", "/healthz"):
        return send(wire.json_answer(200, {"status": "ok"}))
    if method == "GET" and path.endswith("/models"):
        return send(wire.json_answer(200, {"object": "list", "data": [wire.MODEL]}))
    if method != "POST" or not path.endswith("/chat/completions"):
        return send(wire.error_answer(404, "not_found", "no such route"))
    question = wire.read_question(body)
    if question is None:
        return send(wire.error_answer(400, None, "not a chat completion request"))
    return _behaviour(question)


def _behaviour(question: Question) -> Acts:
    name = question.model.rsplit(":", 1)[-1]
    for pattern, behave in BEHAVIOURS:
        match = re.fullmatch(pattern, name)
        if match:
            return behave(question, *(int(group) for group in match.groups() if group))
    return _ok(question)


def _ok(question: Question) -> Acts:
    return answer(question, canned(question))


def _echo(question: Question) -> Acts:
    return answer(question, re.findall(r"\s*\S+\s*", question.last_user))


def _long(question: Question, pieces: int) -> Acts:
    return answer(question, ["word "] * pieces)


def _refusal(question: Question) -> Acts:
    return answer(question, ["[simulated] ", "I cannot ", "help."], "content_filter")


def _slow_first_byte(question: Question, milliseconds: int) -> Acts:
    yield Wait(milliseconds / 1000)
    yield from _ok(question)


def _slow_chunks(question: Question, milliseconds: int) -> Acts:
    """Event by event, or a plain body in ten pieces."""
    for act in _ok(question):
        if isinstance(act, Send) and not question.stream:
            size = len(act.data) // 10 + 1
            pieces = [act.data[i : i + size] for i in range(0, len(act.data), size)]
        else:
            pieces = [act.data] if isinstance(act, Send) else []
        for piece in pieces:
            yield Send(piece)
            yield Wait(milliseconds / 1000)


def _no_usage(question: Question) -> Acts:
    """Does not count tokens, even when asked to."""
    if question.stream:
        return _ok(replace(question, include_usage=False))
    answer = orjson.loads(plain(question, canned(question)))
    del answer["usage"]
    return send(wire.json_answer(200, answer))


def _tool_call(question: Question) -> Acts:
    name, pieces = "lookup", ['{"ci', 'ty": "', 'Turin"}']
    call: Json = {"id": "call_simulated", "type": "function"}
    if not question.stream:
        function = {"name": name, "arguments": "".join(pieces)}
        calls = [{**call, "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        yield Send(wire.json_answer(200, wire.whole(question, message, "tool_calls", len(pieces))))
        return
    first: Json = {"index": 0, **call, "function": {"name": name, "arguments": ""}}
    more: list[Json] = [
        {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces
    ]
    deltas = [{"role": "assistant", "content": None, "tool_calls": [first]}, *more]
    yield Send(wire.stream_head())
    for event in wire.events(question, deltas, "tool_calls"):
        yield Send(wire.framed(event))
    yield Send(wire.framed(wire.DONE) + wire.LAST)


def _utf8_splits(question: Question) -> Acts:
    """Sent in pieces of 1, 2, 3, 5 and 7 bytes, so that every longer character is cut somewhere."""
    pieces = ["caffè ", "日本語 ", "👩‍👩‍👧 ", "naïve ", "𝛑"]
    if question.stream:
        yield Send(wire.stream_head())
        data = b"".join(wire.events(question, deltas(pieces), "stop")) + wire.DONE
    else:
        data = plain(question, pieces)
        yield Send(wire.head(200, "application/json", {"Content-Length": str(len(data))}))
    start = 0
    for size in cycle((1, 2, 3, 5, 7)):
        piece = data[start : start + size]
        if not piece:
            break
        yield Send(wire.framed(piece) if question.stream else piece)
        yield Wait(0)
        start += size
    if question.stream:
        yield Send(wire.LAST)


BEHAVIOURS: tuple[tuple[str, Callable[..., Acts]], ...] = (
    ("ok", _ok),
    ("echo", _echo),
    (r"long-(\d+)", _long),
    ("no-usage", _no_usage),
    ("refusal", _refusal),
    ("tool-call", _tool_call),
    ("utf8-splits", _utf8_splits),
    (r"slow-first-byte-(\d+)", _slow_first_byte),
    (r"slow-chunks-(\d+)", _slow_chunks),
    ("stall", faults.stall),
    ("stall-mid-stream", faults.stall_mid_stream),
    ("cut-before-head", faults.cut_before_head),
    ("cut-before-body", faults.cut_before_body),
    ("cut-mid-stream", faults.cut_mid_stream),
    ("end-mid-stream", faults.end_mid_stream),
    ("no-done", faults.no_done),
    ("finish-one", faults.finish_one),
    ("empty", faults.empty),
    ("error-in-band", faults.error_in_band),
    ("malformed-json", faults.malformed_json),
    ("malformed-sse", faults.malformed_sse),
    ("lone-surrogate", faults.lone_surrogate),
    ("huge-number", faults.huge_number),
    ("deep-json", faults.deep_json),
    ("no-choices", faults.no_choices),
    ("huge", faults.huge),
    (r"status-([3-5]\d\d)(?:-retry-(\d+))?", faults.status),
    ("context-length", faults.context_length),
)
"""Model name (a regular expression; its numbers are arguments) and what that model does."""
