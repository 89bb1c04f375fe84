"""What of a permitted body goes on to a vendor: an allow-list, in one place.

A body that holds anything else is refused, not trimmed: the permit covers all of its bytes, and
`serve` sends none of this on purpose. The list also keeps the vendor library from acting by itself:
it would fetch a linked file or run a hosted tool when a request asks for one.
"""

from __future__ import annotations

from typing import Any

import orjson

from conductor.core import Body, Failure, Worker
from conductor.errors import WorkerError

VENDOR_FIELDS = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "response_format",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "n",
        "seed",
        "logprobs",
        "top_logprobs",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "parallel_tool_calls",
        "stream",
        "stream_options",
        "reasoning_effort",
    }
)
"""Fields of a chat completion request that a vendor may see, beside its own model name. `serve` has
a list of its own: two, so that a slip in one is not a leak. A test holds them together."""

MESSAGE_FIELDS = frozenset(
    {"role", "content", "name", "refusal", "tool_calls", "tool_call_id", "function_call"}
)

_KINDS: dict[str, type | tuple[type, ...]] = {
    "tools": list,
    "tool_choice": (str, dict),
    "functions": list,
    "function_call": (str, dict),
    "response_format": dict,
    "temperature": (int, float),
    "top_p": (int, float),
    "max_tokens": int,
    "max_completion_tokens": int,
    "stop": (str, list),
    "n": int,
    "seed": int,
    "logprobs": bool,
    "top_logprobs": int,
    "presence_penalty": (int, float),
    "frequency_penalty": (int, float),
    "logit_bias": dict,
    "parallel_tool_calls": bool,
    "stream": bool,
    "stream_options": dict,
    "reasoning_effort": str,
}


def vendor_body(worker: Worker, raw: bytes) -> Body:
    """The request as the vendor gets it, with the model name from this site's configuration.

    A `model` in the body is tolerated when it is that very name. On streams, usage is always asked.
    Raises `WorkerError(BAD_REQUEST)`, which names at most a field of our own list.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise _refused("no JSON") from None
    if not isinstance(body, dict):
        raise _refused("no object")
    if body.pop("model", worker.model) != worker.model:
        raise _refused("another model")
    body = _given(body)
    if not body.keys() <= VENDOR_FIELDS:
        raise _refused("a field that vendors may not see")
    for name, value in body.items():
        if name != "messages" and not isinstance(value, _KINDS[name]):
            raise _refused(f"kind of {name}")
    messages = _messages(body.get("messages"))
    for tool in body.get("tools", ()):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise _refused("a tool that is no function")
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    else:
        body.pop("stream_options", None)
    return {**body, "messages": messages, "model": worker.model}


def _messages(messages: Any) -> list[Body]:
    if not isinstance(messages, list) or not messages:
        raise _refused("kind of messages")
    return [_message(message) for message in messages]


def _message(value: Any) -> Body:
    if not isinstance(value, dict):
        raise _refused("kind of message")
    message = _given(value)
    if not message.keys() <= MESSAGE_FIELDS:
        raise _refused("a message field that vendors may not see")
    if not isinstance(message.get("role"), str):
        raise _refused("kind of role")
    _check_content(message.get("content"))
    return {**message, "content": value.get("content")}


def _given(value: Body) -> Body:
    """Without nulls: clients send null for "not given", and not every vendor takes it."""
    return {name: item for name, item in value.items() if item is not None}


def _check_content(content: Any) -> None:
    """Text only: what is no text could not be scanned, and so is never permitted to leave."""
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise _refused("kind of content")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "refusal") or part.keys() != {"type", kind}:
            raise _refused("a content part that is no text")


def _refused(detail: str) -> WorkerError:
    return WorkerError(Failure.BAD_REQUEST, detail)
