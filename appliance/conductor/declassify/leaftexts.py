"""The texts of a JSON value that a declassifier rewrites, and the value with them rewritten.

Two passes, because finding what to cut out is somebody else's work and takes its time:

    texts = leaves(messages)              # strings, keys, what JSON inside strings holds
    new = [mask(text) for text in texts]
    messages = replaced(messages, new)    # the same places, in the same order

JSON inside a string (a tool call's arguments) is rewritten literal by literal: spacing, numbers,
order and doubled names stay as they were, and what is put in is escaped for where it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from conductor.detect.leaves import MAX_NESTED

# Words of the API itself. Whoever takes one for a name would only break the request.
API_WORDS = frozenset(
    (
        "arguments",
        "assistant",
        "content",
        "custom",
        "developer",
        "file",
        "function",
        "function_call",
        "id",
        "image_url",
        "index",
        "input",
        "input_audio",
        "messages",
        "name",
        "refusal",
        "role",
        "system",
        "text",
        "tool",
        "tool_call_id",
        "tool_calls",
        "type",
        "url",
        "user",
    )
)

_NUMBERS = range(10**5, 1 << 64)
"""Integers from six digits on are texts: a telephone number may be sent as a number."""

_LITERAL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
_INTEGER = re.compile(r"-?[0-9]{6,}")

# Made once: the module's functions make a new one for each call that names an option.
_READ = json.JSONDecoder(strict=False).decode
_WRITE = json.JSONEncoder(ensure_ascii=False).encode

_Visit = Callable[[str], str]


def leaves(value: Any) -> list[str]:
    """Every text in a JSON value, in order."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    _rewritten(value, note)
    return found


def replaced(value: Any, texts: Sequence[str]) -> Any:
    """A copy of the value with `texts` in the places of `leaves(value)`. A number whose text
    changed becomes a string. Raises `ValueError` when there are more or fewer texts than places.
    """
    left = iter(texts)
    try:
        copy = _rewritten(value, lambda text: next(left))
    except StopIteration:
        raise ValueError("fewer texts than the value has places") from None
    if next(left, None) is not None:
        raise ValueError("more texts than the value has places")
    return copy


def rewritten(value: Any, find: Callable[[list[str]], Sequence[str]]) -> Any:
    """Both passes: `find` gets all texts at once and returns them as they should be."""
    return replaced(value, find(leaves(value)))


def _rewritten(value: Any, visit: _Visit) -> Any:
    if isinstance(value, str):
        return _string(value, visit, 0)
    if isinstance(value, dict):
        copy: dict[Any, Any] = {}
        for key, item in value.items():
            copy[_free(copy, _key(key, visit))] = _rewritten(item, visit)
        return copy
    if isinstance(value, list | tuple):
        return [_rewritten(item, visit) for item in value]
    if type(value) is int and abs(value) in _NUMBERS:
        text = str(value)
        new = visit(text)
        return value if new == text else new
    return value


def _key(key: Any, visit: _Visit) -> Any:
    return _string(key, visit, 0) if isinstance(key, str) else key


def _free(taken: dict[Any, Any], key: Any) -> Any:
    """A name that the object does not have yet: nothing may vanish when two names become one."""
    name, number = key, 2
    while name in taken:
        name, number = f"{key} ({number})", number + 1
    return name


def _string(text: str, visit: _Visit, level: int) -> str:
    if not text or text in API_WORDS:
        return text
    if level < MAX_NESTED and _is_json(text):
        return _LITERAL.sub(lambda match: _literal(match[0], visit, level + 1), text)
    return visit(text)


def _literal(literal: str, visit: _Visit, level: int) -> str:
    """A string or a number of JSON text. One that does not change keeps its spelling."""
    if literal[0] != '"':
        if _INTEGER.fullmatch(literal) is None:
            return literal
        new = visit(literal)
        return literal if new == literal else _WRITE(new)
    text = _READ(literal)
    new = _string(text, visit, level)
    return literal if new == text else _WRITE(new)


def _is_json(text: str) -> bool:
    """Whether a string holds a JSON object, list or string."""
    bare = text.strip(" \t\r\n")
    if bare[:1] + bare[-1:] not in ("{}", "[]", '""'):
        return False
    try:
        orjson.loads(bare)
    except ValueError:
        return False
    return True
