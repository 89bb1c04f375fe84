"""The simulated vendor's wire: HTTP/1.1 heads, chunked framing, OpenAI answers whole and in events.

Pure bytes from plain values. What is sent when is decided in `behaviours.py`. Forms follow the
OpenAI API reference (chat completion object, chat completion chunk object).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

Json = dict[str, Any]

MODEL: Json = {"id": "simulated", "object": "model", "created": 1, "owned_by": "simulated"}
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
"""The chunk that ends a chunked transfer."""


@dataclass(frozen=True)
class Question:
    """The parts of a chat completion request that an answer depends on."""

    model: str
    stream: bool
    include_usage: bool
    n: int
    last_user: str
    prompt_tokens: int


def read_question(body: bytes) -> Question | None:
    """None when the body is no chat completion request."""
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    messages = request.get("messages") if isinstance(request, dict) else None
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return None
    users = [m.get("content") for m in messages if m.get("role") == "user"]
    options = request.get("stream_options") or {}
    return Question(
        model=str(request.get("model", "")),
        stream=request.get("stream") is True,
        include_usage=options.get("include_usage") is True,
        n=request.get("n") or 1,
        last_user=users[-1] if users and isinstance(users[-1], str) else "",
        prompt_tokens=max(1, len(orjson.dumps(messages)) // 4),
    )


# -- HTTP -------------------------------------------------------------------------------------


def head(status: int, content_type: str, headers: Mapping[str, str]) -> bytes:
    """Status line and headers. Every answer says that it is simulated."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Simulated"
    fields = {"Content-Type": content_type, "X-Simulated": "true", **headers}
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def stream_head() -> bytes:
    return head(200, "text/event-stream", {"Transfer-Encoding": "chunked"})


def framed(data: bytes) -> bytes:
    """One chunk of a chunked transfer."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def body(status: int, data: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    return (
        head(status, "application/json", {"Content-Length": str(len(data)), **(headers or {})})
        + data
    )


def json_answer(status: int, value: Json, headers: Mapping[str, str] | None = None) -> bytes:
    return body(status, orjson.dumps(value), headers)


def error_answer(
    status: int, code: str | None, message: str, headers: Mapping[str, str] | None = None
) -> bytes:
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json_answer(status, {"error": error}, headers)


# -- chat completions -------------------------------------------------------------------------


def whole(question: Question, message: Json, finish: str, completion_tokens: int) -> Json:
    """A plain answer, the same message for each of the `n` choices."""
    choices = [
        {"index": i, "message": message, "logprobs": None, "finish_reason": finish}
        for i in range(question.n)
    ]
    usage = _usage(question, completion_tokens)
    return {**_common(question, "chat.completion"), "choices": choices, "usage": usage}


def event(value: Json) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def events(question: Question, deltas: Sequence[Json], finish: str) -> Iterator[bytes]:
    """The server-sent events of a streamed answer up to, not including, `[DONE]`."""
    for delta in deltas:
        yield _chunk(question, delta, None)
    yield _chunk(question, {}, finish)
    if question.include_usage:
        usage = _usage(question, len(deltas))
        common = _common(question, "chat.completion.chunk")
        yield event({**common, "choices": [], "usage": usage})


def _chunk(question: Question, delta: Json, finish: str | None) -> bytes:
    choices = [
        {"index": i, "delta": delta, "logprobs": None, "finish_reason": finish}
        for i in range(question.n)
    ]
    return event({**_common(question, "chat.completion.chunk"), "choices": choices})


def _common(question: Question, kind: str) -> Json:
    return {
        "id": "chatcmpl-simulated",
        "object": kind,
        "created": 1,
        "model": question.model,
        "system_fingerprint": "simulated",
    }


def _usage(question: Question, completion_tokens: int) -> Json:
    return {
        "prompt_tokens": question.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": question.prompt_tokens + completion_tokens,
    }
