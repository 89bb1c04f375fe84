"""A chat completion request: from a client's bytes to a checked value, on to a worker's bytes.

Left out: who may ask (`middleware`), how sensitive it is (`detect/`), who answers (`run/`).
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from conductor.chat.fields import REMOTE_FIELDS, check_fields
from conductor.chat.jsonbody import read_object
from conductor.chat.messages import (
    check_messages,
    for_worker,
    is_plain,
    question_of,
    text_bytes,
)
from conductor.chat.routing import routing_field
from conductor.core import Body
from conductor.errors import BadRequest

# Whatever carries one of these must be answered by a single worker.
_ONE_STEP_FIELDS = (
    "tools",
    "functions",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "audio",
    "prediction",
    "web_search_options",
)


@dataclass(frozen=True)
class ChatRequest:
    """A request that passed every check. `body` holds no routing field and no null; it is shared
    and must not be changed."""

    body: Body
    model: str
    stream: bool
    include_usage: bool
    question: str
    """Text of the last user message, at most 20,000 characters."""
    one_step: bool
    """Tools, a schema, logprobs, n > 1, pictures …: the answer must come from a single worker."""
    max_tokens: int | None
    prompt_bytes: int
    """UTF-8 bytes of what a model has to read, tools included; for estimates."""
    ignored: tuple[str, ...]
    """Routing fields that were taken out, sorted: for the audit record and a response header."""
    size: int = 0
    """Bytes of the JSON text it was parsed from: what works through all of it takes its time."""


def parse_chat(raw: bytes) -> ChatRequest:
    """Decode and check the body of a chat completion request.

    Raises:
        BadRequest: for everything that is wrong with it; `param` names the field.
    """
    given = read_object(raw)
    body: Body = {}
    ignored = set()
    for name, value in given.items():
        routing = routing_field(name)
        if routing is not None:
            ignored.add(routing)
        elif value is not None:
            body[name] = value
    if "model" not in body:
        raise BadRequest("'model' is missing: name a model of GET /v1/models.", param="model")
    check_fields(body)
    check_messages(body.get("messages"))
    return _request(body, tuple(sorted(ignored)), len(raw))


def outgoing(
    request: ChatRequest,
    *,
    model: str,
    stream: bool,
    remote: bool,
    messages: list[Body] | None = None,
    max_tokens: int | None = None,
) -> bytes:
    """The exact bytes for a worker: canonical JSON, sorted keys.

    `messages` replaces the client's (a step of a plan); `max_tokens` caps the client's. A remote
    worker gets the fields that the API defines and nothing about who asks; a local one also those
    that are unknown here. Usage is always asked for, whether or not the client wants to see it.
    """
    body = {
        name: value for name, value in request.body.items() if not remote or name in REMOTE_FIELDS
    }
    body["model"] = model
    body["messages"] = for_worker(body["messages"] if messages is None else messages, remote=remote)
    body["stream"] = stream
    body.pop("stream_options", None)
    if stream:
        body["stream_options"] = {"include_usage": True}
    _limit_tokens(body, request.max_tokens, max_tokens, remote)
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


def _request(body: Body, ignored: tuple[str, ...], size: int) -> ChatRequest:
    messages = body["messages"]
    for name in ("tools", "functions"):
        if not body.get(name):  # back-ends differ about an empty list; it says nothing
            body.pop(name, None)
    limits = [body[name] for name in ("max_completion_tokens", "max_tokens") if name in body]
    return ChatRequest(
        body=body,
        model=body["model"],
        stream=body.get("stream", False),
        include_usage=bool(body.get("stream_options", {}).get("include_usage")),
        question=question_of(messages),
        one_step=_one_step(body),
        max_tokens=min(limits, default=None),
        prompt_bytes=text_bytes(messages) + _tool_bytes(body),
        ignored=ignored,
        size=size,
    )


def _one_step(body: Body) -> bool:
    return (
        any(body.get(name) for name in _ONE_STEP_FIELDS)
        or body.get("n", 1) > 1
        or body.get("response_format", {}).get("type", "text") != "text"
        or body.get("modalities", ["text"]) != ["text"]
        or not is_plain(body["messages"])
    )


def _tool_bytes(body: Body) -> int:
    names = ("tools", "functions", "response_format")
    return sum(len(orjson.dumps(body[name])) for name in names if name in body)


def _limit_tokens(body: Body, wanted: int | None, cap: int | None, remote: bool) -> None:
    """Set the tighter limit. Vendors disagree about the field's name, so a remote worker gets the
    one that the client used; local back-ends all know the old one."""
    limits = [limit for limit in (wanted, cap) if limit is not None]
    newer = remote and "max_completion_tokens" in body
    body.pop("max_completion_tokens", None)
    body.pop("max_tokens", None)
    if limits:
        body["max_completion_tokens" if newer else "max_tokens"] = min(limits)
