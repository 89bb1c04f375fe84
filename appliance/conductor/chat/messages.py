"""The messages of a chat completion request: what is allowed, and what they say.

Files and pictures come inline: a part that points to an address is refused, because some worker
would fetch it, and nothing here fetches anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from conductor.chat.fields import invalid
from conductor.core import Body
from conductor.errors import BadRequest

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

MAX_QUESTION_CHARS = 20_000

_ADDRESS = re.compile(r"\s*[A-Za-z][\w+.-]{0,30}://")

_REMOTE_MESSAGE_FIELDS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "function_call"}
)


def check_messages(messages: Any) -> None:
    """Raises `BadRequest`, with `param` naming the place, for anything but proper messages."""
    if messages is None:
        raise BadRequest("'messages' is missing: send a list of messages.", param="messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "must be a list of at least one message")
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if not isinstance(message, dict):
            raise invalid(where, "must be an object")
        _check_message(where, message)


def question_of(messages: list[Body]) -> str:
    """The text of the last user message, or of the last message when there is none; bounded."""
    users = [message for message in messages if message["role"] == "user"]
    return last_text(users or messages)[:MAX_QUESTION_CHARS]


def last_text(messages: list[Body]) -> str:
    """The text of the last message."""
    return text_of(messages[-1])


def text_of(message: Body) -> str:
    """The text of a message, its parts one a line."""
    return "\n".join(_texts(message.get("content")))


def is_plain(messages: list[Body]) -> bool:
    """Whether the conversation is text alone: no tool calls or results, no files or pictures."""
    return all(
        message["role"] not in ("tool", "function")
        and not message.get("tool_calls")
        and not message.get("function_call")
        and all(part["type"] == "text" for part in _parts(message.get("content")))
        for message in messages
    )


def text_bytes(messages: list[Body]) -> int:
    """How much text a model has to read, roughly: UTF-8 bytes of contents, names and calls."""
    size = 0
    for message in messages:
        size += sum(len(text.encode()) for text in _texts(message.get("content")))
        calls = message.get("tool_calls") or message.get("function_call")
        size += len(orjson.dumps(calls)) if calls else 0
    return size


def for_worker(messages: list[Body], *, remote: bool) -> list[Body]:
    """The messages in the form that a worker takes.

    A remote one gets the fields that the API defines and no others. Local back-ends mostly do not
    know the role `developer`, which the API made of `system`.
    """
    if remote:
        return [_bare(message) for message in messages]
    return [
        {**message, "role": "system"} if message["role"] == "developer" else message
        for message in messages
    ]


def _bare(message: Body) -> Body:
    """A message for a remote worker: the API's fields, and of a part its type and its content."""
    bare = {key: value for key, value in message.items() if key in _REMOTE_MESSAGE_FIELDS}
    if isinstance(bare.get("content"), list):
        bare["content"] = [
            {key: part[key] for key in ("type", part["type"]) if key in part}
            for part in bare["content"]
        ]
    return bare


def _check_message(where: str, message: Body) -> None:
    role = message.get("role")
    if role not in ROLES:
        raise invalid(f"{where}.role", f"must be one of {', '.join(ROLES)}")
    if message.get("name") is not None and not isinstance(message["name"], str):
        raise invalid(f"{where}.name", "must be a string")
    calls = message.get("tool_calls")
    if calls is not None:
        if role != "assistant":
            raise invalid(f"{where}.tool_calls", "is only allowed in an assistant message")
        _check_calls(f"{where}.tool_calls", calls)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise invalid(f"{where}.tool_call_id", "must be the id of the call that is answered")
    may_be_null = role == "assistant" and any(
        message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio")
    )
    _check_content(f"{where}.content", message.get("content"), may_be_null)


def _check_content(where: str, content: Any, may_be_null: bool) -> None:
    if isinstance(content, str) or (content is None and may_be_null):
        return
    if not isinstance(content, list) or not content:
        raise invalid(where, "must be a string or a list of content parts")
    for place, part in enumerate(content):
        _check_part(f"{where}[{place}]", part)


def _check_part(where: str, part: Any) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise invalid(where, "must be an object with a 'type'")
    if part["type"] == "text" and not isinstance(part.get("text"), str):
        raise invalid(f"{where}.text", "must be a string")
    for key, value in part.items():
        if key != "text" and not _inline(key, value):
            raise invalid(
                where, "must hold its data inline, as a 'data:' URL: nothing is fetched here"
            )


def _inline(key: str, value: Any) -> bool:
    """Whether nothing in a part's field points elsewhere, wherever a back-end might look for it."""
    if isinstance(value, dict):
        return all(
            _inline(key if name in ("url", "uri") else name, item) for name, item in value.items()
        )
    if isinstance(value, list):
        return all(_inline(key, item) for item in value)
    if key.endswith(("_url", "_uri")) or key in ("url", "uri"):
        return isinstance(value, str) and value.startswith("data:")
    return not isinstance(value, str) or _ADDRESS.match(value) is None


def _check_calls(where: str, calls: Any) -> None:
    if not isinstance(calls, list):
        raise invalid(where, "must be a list of tool calls")
    for place, call in enumerate(calls):
        one = f"{where}[{place}]"
        if not isinstance(call, dict) or not isinstance(call.get("id"), str):
            raise invalid(one, "must be an object with an 'id'")
        kind, field = ("custom", "input") if "custom" in call else ("function", "arguments")
        payload = call.get(kind)
        if not isinstance(payload, dict) or not isinstance(payload.get("name"), str):
            raise invalid(f"{one}.{kind}", "must be an object with a 'name'")
        if not isinstance(payload.get(field), str):
            raise invalid(f"{one}.{kind}.{field}", "must be a string")


def _parts(content: Any) -> Iterator[Body]:
    if isinstance(content, list):
        yield from content


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in _parts(content):
        if part["type"] == "text":
            yield part["text"]
