"""Tool calls as the back-ends stream them, made one: stable ids, running indexes, string arguments.

Seen in the field: no id at all; a new id on every fragment; index 0 for all calls; one call at
several indexes; the same call sent twice; arguments as an object. What tells calls apart is then
the name: a fragment without one continues a call, a fragment with one begins a call unless the
call so far has the same name and is not complete. Pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson

from conductor.core import Body, Failure
from conductor.errors import WorkerError

MAX_CALLS = 128

# A function takes JSON arguments, a custom tool takes free text.
_TEXT_FIELD = {"function": "arguments", "custom": "input"}


@dataclass
class _Call:
    index: int
    id: str
    kind: str
    name: str
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def complete(self) -> bool:
        """Whether the arguments so far are whole. Free text never shows its end."""
        try:
            orjson.loads(self.text)
        except orjson.JSONDecodeError:
            return False
        return True


@dataclass(frozen=True)
class _Fragment:
    """One upstream delta of a call. Empty strings stand for what it does not say."""

    index: int | None
    id: str
    kind: str
    name: str
    text: str

    @classmethod
    def read(cls, raw: Any) -> _Fragment:
        if not isinstance(raw, dict):
            raise WorkerError(Failure.MALFORMED, "a tool call is no object")
        kind = "custom" if isinstance(raw.get("custom"), dict) else "function"
        payload = raw.get(kind)
        if not isinstance(payload, dict):
            payload = {}
        index = raw.get("index")
        return cls(
            index=index if type(index) is int else None,
            id=_text(raw.get("id")),
            kind=kind,
            name=_text(payload.get("name")),
            text=_as_json_text(payload.get(_TEXT_FIELD[kind])),
        )


class ToolCalls:
    """The calls of one choice. `seed` makes the ids that a back-end left out: the same answer
    gives the same ids, streamed and plain."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}
        self.text_bytes = 0
        """UTF-8 bytes of arguments so far, for estimates."""

    @property
    def seen(self) -> bool:
        return bool(self._calls)

    def take(self, raw: Any) -> list[Body]:
        """The deltas to send for the `tool_calls` of one upstream delta.

        Raises:
            WorkerError: MALFORMED, for what are no tool calls, or too many.
        """
        if raw is None:
            return []
        if not isinstance(raw, list):
            raise WorkerError(Failure.MALFORMED, "tool_calls is no list")
        out: list[Body] = []
        for item in raw:
            out.extend(self._take_one(_Fragment.read(item)))
        return [{"tool_calls": [delta]} for delta in out]

    def _take_one(self, fragment: _Fragment) -> list[Body]:
        call = self._find(fragment)
        opened: list[Body] = []
        if call is None or _begins_another(call, fragment):
            call = self._open(fragment)
            opened = [_announcement(call)]
        elif _repeats(call, fragment):
            return []
        self._remember(call, fragment)
        self.text_bytes += len(fragment.text.encode())
        return opened + _continuation(call, fragment)

    def _find(self, fragment: _Fragment) -> _Call | None:
        if fragment.id in self._by_id:
            return self._by_id[fragment.id]
        if fragment.index is not None:
            return self._by_index.get(fragment.index)
        return self._calls[-1] if self._calls else None

    def _open(self, fragment: _Fragment) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            raise WorkerError(Failure.MALFORMED, "too many tool calls")
        index = len(self._calls)
        taken = not fragment.id or fragment.id in self._by_id
        id = self._own_id(index) if taken else fragment.id
        call = _Call(index, id, fragment.kind, fragment.name)
        self._calls.append(call)
        self._by_id[id] = call
        return call

    def _own_id(self, index: int) -> str:
        return "call_" + hashlib.sha256(f"{self._seed}/{index}".encode()).hexdigest()[:24]

    def _remember(self, call: _Call, fragment: _Fragment) -> None:
        """Whatever this fragment called itself leads to the same call from now on."""
        if fragment.id:
            self._by_id[fragment.id] = call
        if fragment.index is not None:
            self._by_index[fragment.index] = call


def _begins_another(call: _Call, fragment: _Fragment) -> bool:
    if not fragment.name or not call.name:
        return False
    if fragment.name != call.name:
        return True
    if not fragment.text and (not fragment.id or fragment.id == call.id):
        return False
    return call.complete and not _repeats(call, fragment)


def _repeats(call: _Call, fragment: _Fragment) -> bool:
    """The same call once more, whole."""
    return (
        fragment.id == call.id
        and fragment.name == call.name
        and bool(call.name)
        and fragment.text == call.text != ""
    )


def _announcement(call: _Call) -> Body:
    payload = {"name": call.name, _TEXT_FIELD[call.kind]: ""}
    return {"index": call.index, "id": call.id, "type": call.kind, call.kind: payload}


def _continuation(call: _Call, fragment: _Fragment) -> list[Body]:
    payload: dict[str, str] = {}
    if fragment.name and not call.name:
        call.name = payload["name"] = fragment.name
    if fragment.text:
        call.parts.append(fragment.text)
        payload[_TEXT_FIELD[call.kind]] = fragment.text
    return [{"index": call.index, call.kind: payload}] if payload else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _as_json_text(value: Any) -> str:
    """Arguments as the string the API promises, whatever the back-end made of them."""
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
