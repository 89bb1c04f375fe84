"""Every text of a JSON body: strings, keys, JSON inside strings, and texts set side by side.

A reading has several documents, because what they hold is found under different names:

    raw       keys and strings as they stand, a member as `key: value`
    nested    the same of JSON that was found inside strings
    rows      lists and objects of short strings, each read as one
    joined    what a reader of the conversation reads as one: neighbouring parts and messages
    adjacent  strings next to each other anywhere

What cannot be read as text is named in `unscanned`. The walk keeps its own stack, so depth costs
memory in proportion and never a recursion error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import orjson

from conductor.detect.canonical import BREAK
from conductor.detect.conversation import beside, joined, opaque

MAX_NESTED = 3
"""Layers of JSON inside strings of JSON that are opened."""

_MIN_NUMBER = 10**11
"""Numbers from twelve digits on are text as well: an account may be sent as a number."""

_MAX_NUMBER_BITS = 8192
"""Longer integers are not written out: it takes quadratic time."""

_ROW = 64
"""Items of a list that may together spell one thing: a card in four strings, a key letter by
letter. Numbers are left out, save single digits: measurements would read as cards."""
_ROW_CHARS = 4096
_CODES = 10
"""From so many small numbers on, a list may be a text in character codes."""

_LABELS = frozenset({"role", "type", "id", "name", "model", "object", "tool_call_id", "call_id"})
"""Members that stand between the texts of a conversation and are none of it."""

_PADDING = " \t\r\n\ufeff"
"""What may stand around JSON in a string: white space and a byte order mark."""

_Node = tuple[Any, str | None, int]
"""A value, its key if it is a member, and how many layers of strings it was found in."""


@dataclass(frozen=True)
class Reading:
    """The documents of a body by name, in order, and why some of it could not be read."""

    documents: dict[str, str]
    text_bytes: int
    unscanned: frozenset[str]


def read(value: object, max_text_bytes: int) -> Reading:
    """Read every text of `value`. Beyond `max_text_bytes` the rest is unscanned: `too-long`."""
    walk = _Walk(max_text_bytes)
    walk.run(value)
    documents = {
        "raw": document(walk.texts),
        "nested": document(walk.nested),
        "rows": document(walk.rows),
        "joined": BREAK.join(joined(value)),
        "adjacent": beside(walk.strings) if len(walk.strings) > 1 else "",
    }
    return Reading(documents, walk.text_bytes, frozenset(walk.unscanned | opaque(value)))


def document(texts: list[str]) -> str:
    """The texts with a break between each two."""
    whole = BREAK.join(texts)
    if whole.count(BREAK) >= max(len(texts), 1):  # a text that holds one must not be cut by it
        whole = BREAK.join(text.replace(BREAK, "") for text in texts)
    return whole


class _Walk:
    """One pass over a tree, in document order."""

    def __init__(self, max_text_bytes: int) -> None:
        self.texts: list[str] = []
        self.nested: list[str] = []
        self.rows: list[str] = []
        self.strings: list[str] = []
        self.unscanned: set[str] = set()
        self.text_bytes = 0
        self._max_text_bytes = max_text_bytes
        self._stack: list[_Node] = []

    def run(self, value: object) -> None:
        self._stack.append((value, None, 0))
        while self._stack:
            node = self._stack.pop()
            self._visit(node)
            if self.text_bytes > self._max_text_bytes:
                self.unscanned.add("too-long")
                return

    def _visit(self, node: _Node) -> None:
        value, key, level = node
        if key is not None and not isinstance(key, str):
            self.unscanned.add("not-json")
        if isinstance(value, str):
            self._string(value, key, level)
        elif isinstance(value, dict):
            self._take(key, level)
            self._row(list(value.values()))
            self._stack.extend((item, name, level) for name, item in reversed(value.items()))
        elif isinstance(value, list):
            self._take(key, level)
            self._row(value)
            self._stack.extend((item, None, level) for item in reversed(value))
        elif value is None or isinstance(value, int | float):
            self._take(key, level)
            self._number(value, level)
        else:
            self.unscanned.add("not-json")

    def _take(self, text: str | None, level: int) -> None:
        if not text:
            return
        if level:
            self.nested.append(text)
        else:
            self.texts.append(text)
            self.text_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "ignore"))

    def _string(self, value: str, key: str | None, level: int) -> None:
        self._take(f"{key}: {value}" if key else value, level)
        if key not in _LABELS:
            self.strings.append(value)
        head = value[:1]
        if head and (head in '{["' or head in _PADDING):
            self._open(value.strip(_PADDING), level)

    def _row(self, items: list[Any]) -> None:
        """Note what the items of a list or an object say when they are read as one."""
        if len(items) >= _CODES and all(type(item) is int and 0 <= item < 256 for item in items):
            self.rows.append(" ".join(map(str, items)))
        if not 2 <= len(items) <= _ROW or not all(map(_is_short, items)):
            return
        whole = "".join(map(str, items))
        if len(whole) == len(items):  # letter by letter: a text, and no column of a table
            self.nested.append(whole)
        elif len(whole) <= _ROW_CHARS:
            self.rows.append(whole)

    def _open(self, text: str, level: int) -> None:
        """Read JSON inside a string. What only begins like JSON has been read as a string."""
        if text[:1] + text[-1:] not in ("{}", "[]", '""'):
            return
        try:
            inner = orjson.loads(text)
        except ValueError:
            return
        if level >= MAX_NESTED:
            self.unscanned.add("nested-json")
        else:
            self._stack.append((inner, None, level + 1))

    def _number(self, value: float | None, level: int) -> None:
        """`value` may be None or a truth value, which are no text."""
        if value is None or isinstance(value, bool) or not abs(value) >= _MIN_NUMBER:
            return
        if isinstance(value, float):
            if math.isinf(value):
                return
            value = int(value)  # what stands behind the point makes it no less an account
        if value.bit_length() > _MAX_NUMBER_BITS:
            self.unscanned.add("number")
        else:
            self._take(str(value), level)


def _is_short(item: object) -> bool:
    """A string that a list may hold a part of something in, or a digit."""
    return isinstance(item, str) or (type(item) is int and 0 <= item <= 9)
