"""Restoring tokens in a text that comes in pieces, cut anywhere.

A piece is passed on up to an opening bracket that may still begin a token: at most 31 characters
wait, and nothing waits for the end. What comes out does not depend on where the text was cut, so a
plain answer is a text in one piece.

Text of JSON (a tool call's arguments) needs more: a bracket may be written `\\u27e6`, a value is
escaped for the string it lands in, and twice in JSON inside a string.

A token within a URL stays a token. Whoever renders an answer or runs a tool fetches what it names,
and would so tell the value to a host of the worker's choosing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Protocol

from conductor.declassify.tokens import CANDIDATE, CLOSE, MAX_BODY, OPEN

ValueOf = Callable[[str], str | None]
"""From a token's body to its value; None when it stays."""


class HeldBack(Protocol):
    """A text that comes in pieces."""

    def feed(self, piece: str) -> str:
        """What can be passed on now."""

    def flush(self) -> str:
        """What was held back; the text has ended, or this part of it has."""


_CLOSED_BY = {"<": ">", '"': '"', "'": "'"}


class _Address:
    """Whether a text that comes in pieces has got into a URL, and not out of it yet.

    Two slashes begin one, also as JSON may write them. One that stands in quotes or angle brackets
    goes on to their end, another one to the next space; none goes on over a line's end or, in JSON,
    a string's. Other brackets may be part of it. In doubt it has not ended.
    """

    _TURN = re.compile(
        r"""(?P<open>[<"'])?(?:[A-Za-z][\w+.-]{0,20}:)?(?P<into>(?:\\?/|\\u002[fF]){2})"""
        r"""|(?P<end>[\s>"'])|(?P<line>(?<!\\)\\[nr])"""
    )
    _LONGEST = 40

    def __init__(self, json: bool) -> None:
        self.inside = False
        self._json = json
        self._closed_by = ""
        self._before = ""

    def follow(self, text: str) -> str:
        """Take in what comes next, and give it back."""
        seen, known = self._before + text, len(self._before)
        for turn in self._TURN.finditer(seen):
            if turn.end() <= known:
                continue
            if turn["into"] is None:
                self.inside = self.inside and not self._ends(turn)
            elif not self.inside:
                self.inside, self._closed_by = True, _CLOSED_BY.get(turn["open"], "")
        self._before = seen[-self._LONGEST :]
        return text

    def _ends(self, turn: re.Match[str]) -> bool:
        if (mark := turn["end"]) is None:
            return self._json
        if mark in "\r\n" or (self._json and mark == '"'):
            return True
        return mark == self._closed_by if self._closed_by else mark.isspace()


class PlainText:
    """Text in which a value stands as it is."""

    _BEGUN = re.compile(rf"{OPEN}[^{OPEN}{CLOSE}]{{0,{MAX_BODY}}}\Z")

    def __init__(self, value_of: ValueOf) -> None:
        self._value_of = value_of
        self._held = ""
        self._address = _Address(json=False)

    def feed(self, piece: str) -> str:
        if not self._held and OPEN not in piece:
            return self._address.follow(piece)
        text = self._held + piece
        begun = self._BEGUN.search(text, max(0, len(text) - MAX_BODY - 1))
        end = begun.start() if begun else len(text)
        self._held = text[end:]
        return self._restored(text[:end])

    def flush(self) -> str:
        text, self._held = self._held, ""
        return self._address.follow(text)  # begun and not ended: no token

    def _restored(self, text: str) -> str:
        parts, done = [], 0
        for match in CANDIDATE.finditer(text):
            parts.append(self._address.follow(text[done : match.start()]))
            value = None if self._address.inside else self._value_of(match[1])
            parts.append(self._address.follow(match[0] if value is None else value))
            done = match.end()
        return "".join((*parts, self._address.follow(text[done:])))


_OPENED, _CLOSED = rf"(?:{OPEN}|\\u27[eE]6)", rf"(?:{CLOSE}|\\u27[eE]7)"
_BODY = rf'[^{OPEN}{CLOSE}"\\]'
_SPACE = r"[ \t\r\n]{0,8}"


class JsonText:
    """Text of JSON, which need not be well formed."""

    _SPECIAL = re.compile(rf'[{OPEN}"\\]')
    _STEP = re.compile(
        rf"{_OPENED}(?P<body>{_BODY}{{1,{MAX_BODY}}}){_CLOSED}"
        # Escapes of JSON in a string: `\\\"` is a quote within a string within a string.
        r'|(?P<inner>\\\\\\["\\])'
        r"|(?P<escape>\\.)"
        rf'|"(?P<nested>{_SPACE}[\[{{])?',
        re.DOTALL,
    )
    # The beginnings of all that a step may be, at the end of a piece.
    _BEGUN = re.compile(
        rf"(?:{_OPENED}{_BODY}{{0,{MAX_BODY}}})?(?:\\(?:u(?:2(?:7[eE]?)?)?)?)?\Z"
        rf'|\\\\\\?\Z|"{_SPACE}\Z'
    )

    def __init__(self, value_of: ValueOf) -> None:
        self._value_of = value_of
        self._held = ""
        self._in_string = self._is_nested = self._in_inner = False
        self._address = _Address(json=True)

    def feed(self, piece: str) -> str:
        return self._pass_on(self._held + piece, ended=False)

    def flush(self) -> str:
        return self._pass_on(self._held, ended=True)

    def _pass_on(self, text: str, ended: bool) -> str:
        self._held, parts, done = "", [], 0
        while special := self._SPECIAL.search(text, done):
            start = special.start()
            parts.append(self._address.follow(text[done:start]))
            if not ended and self._BEGUN.match(text, start):
                self._held = text[start:]
                return "".join(parts)
            step = self._STEP.match(text, start)
            parts.append(self._address.follow(self._take(step) if step else text[start]))
            done = step.end() if step else start + 1
        return "".join((*parts, self._address.follow(text[done:])))

    def _take(self, step: re.Match[str]) -> str:
        """What stands for one step; keeps track of the string that it is in."""
        if step["body"] is not None:
            return self._put(step)
        if step["escape"] == '\\"' and self._is_nested:
            self._in_inner = not self._in_inner
        elif step[0][0] == '"':
            self._in_string = not self._in_string
            self._is_nested = self._in_string and step["nested"] is not None
            self._in_inner = False
        return step[0]

    def _put(self, step: re.Match[str]) -> str:
        value = None if self._address.inside else self._value_of(step["body"])
        if value is None:
            return step[0]
        value = _escaped(value)
        return _escaped(value) if self._in_inner else value


def _escaped(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]
