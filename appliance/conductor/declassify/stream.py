"""Restoring pseudonyms in what a worker answers: streamed chunks as `run/stream.py` shapes them,
and plain bodies. Contents, refusals, reasoning, tool calls' arguments, citations.

Every text of every choice has a buffer of its own. What it holds back goes out before the chunk
that closes its choice; no closing chunk is lost. Left as they are: log-probabilities, whose pieces
of tokens say nothing, and ids.
"""

from __future__ import annotations

from typing import Any

from conductor.core import Body
from conductor.declassify.heldback import HeldBack, JsonText, PlainText, ValueOf
from conductor.declassify.pseudonyms import Pseudonyms
from conductor.labels import Clearance

_AS_THEY_ARE = frozenset({"role", "id", "type", "index", "tool_call_id"})


class Restorer:
    """Restores one streamed answer for a sink with `clearance`.

    `json_content`: the client asked for JSON, so that values are escaped in the content as well.
    """

    def __init__(
        self, pseudonyms: Pseudonyms, clearance: Clearance, *, json_content: bool = False
    ) -> None:
        self._value_of = _towards(pseudonyms, clearance)
        self._json_content = json_content
        self._choices: dict[Any, _Message] = {}
        self._head: Body = {}

    def feed(self, chunk: Body) -> list[Body]:
        """The chunks to send for one that came: none while all of it is held back."""
        entries = chunk.get("choices")
        if not isinstance(entries, list) or not entries:
            return [chunk]
        self._head = ahead = {**chunk, "usage": None} if "usage" in chunk else chunk
        before: list[Body] = []
        now = []
        for entry in entries:
            held, rest = self._entry(entry)
            before += held
            now += rest
        out = [{**ahead, "choices": [entry]} for entry in before]
        if now or chunk.get("usage"):
            out.append({**chunk, "choices": now})
        return out

    def flush(self) -> list[Body]:
        """What is still held back when a stream ends without a finish reason."""
        out = []
        for index, message in self._choices.items():
            if delta := message.tails():
                entry = {"index": index, "delta": delta, "finish_reason": None}
                out.append({**self._head, "choices": [entry]})
        return out

    def _entry(self, entry: Any) -> tuple[list[Body], list[Body]]:
        """The entries to send ahead, and what becomes of this one: it, or nothing."""
        if not isinstance(entry, dict) or not isinstance(entry.get("delta"), dict):
            return [], [entry]
        index, came = entry.get("index", 0), entry["delta"]
        message = self._choices.setdefault(index, _Message(self._value_of, self._json_content))
        delta = message.take(came)
        if entry.get("finish_reason"):
            tails = message.tails()
            ahead = [one for one in (delta, tails) if one] if tails else []
            held = [{"index": index, "delta": one, "finish_reason": None} for one in ahead]
            return held, [{**entry, "delta": {} if tails else delta}]
        says_nothing = not delta and came and entry.get("logprobs") is None
        return [], [] if says_nothing else [{**entry, "delta": delta}]


def restore_body(
    body: Body, pseudonyms: Pseudonyms, clearance: Clearance, *, json_content: bool = False
) -> Body:
    """A plain answer with its tokens restored: the same as its stream, put together."""
    value_of = _towards(pseudonyms, clearance)

    def restored(entry: Any) -> Any:
        if not isinstance(entry, dict) or not isinstance(entry.get("message"), dict):
            return entry
        message = _Message(value_of, json_content).take(entry["message"], whole=True)
        return {**entry, "message": message}

    entries = body.get("choices")
    if not isinstance(entries, list):
        return body
    return {**body, "choices": [restored(entry) for entry in entries]}


def _towards(pseudonyms: Pseudonyms, clearance: Clearance) -> ValueOf:
    return lambda body: pseudonyms.value_of(body, clearance)


class _Message:
    """The texts of one choice, each with what is held back of it."""

    def __init__(self, value_of: ValueOf, json_content: bool) -> None:
        self._value_of = value_of
        self._json_content = json_content
        self._texts: dict[tuple[Any, ...], HeldBack] = {}

    def take(self, delta: Body, whole: bool = False) -> Body:
        """A delta restored, without what was emptied. `whole`: it is all there will be."""
        out: Body = {}
        for key, value in delta.items():
            new = self._field(key, value, whole)
            if new or not value:
                out[key] = new
        return out

    def tails(self) -> Body:
        """All that is held back, as one delta."""
        out: Body = {}
        for path, text in self._texts.items():
            if not (tail := text.flush()):
                continue
            if path[0] == "tool_calls":
                _, index, kind, field = path
                call = {"index": index, kind: {field: tail}}
                out.setdefault("tool_calls", []).append(call)
            elif path[0] == "function_call":
                out["function_call"] = {path[1]: tail}
            else:
                out[path[0]] = tail
        return out

    def _field(self, key: str, value: Any, whole: bool) -> Any:
        if key == "tool_calls" and isinstance(value, list):
            calls = [self._call(call, at, whole) for at, call in enumerate(value)]
            return [call for call in calls if call]
        if key == "function_call" and isinstance(value, dict):
            return self._payload((key,), value, whole)
        return self._value((key,), value, whole)

    def _call(self, call: Any, position: int, whole: bool) -> Any:
        if not isinstance(call, dict):
            return call
        index = position if whole else call.get("index", position)
        out = {
            key: self._payload(("tool_calls", index, key), value, whole)
            if isinstance(value, dict)
            else value
            for key, value in call.items()
        }
        emptied = any(call[key] and not value for key, value in out.items())
        return None if emptied and out.keys() <= {"index", "function", "custom"} else out

    def _payload(self, path: tuple[Any, ...], payload: Body, whole: bool) -> Body:
        out = {key: self._value((*path, key), value, whole) for key, value in payload.items()}
        return {key: value for key, value in out.items() if value or not payload[key]}

    def _value(self, path: tuple[Any, ...], value: Any, whole: bool) -> Any:
        if path[-1] in _AS_THEY_ARE:
            return value
        if not isinstance(value, str) or path[-1] == "name":
            return _restored(value, self._value_of)
        text = self._texts.get(path) or self._texts.setdefault(path, self._text(path))
        piece = text.feed(value)
        return piece + text.flush() if whole else piece

    def _text(self, path: tuple[Any, ...]) -> HeldBack:
        is_json = path[-1] == "arguments" or (path == ("content",) and self._json_content)
        return JsonText(self._value_of) if is_json else PlainText(self._value_of)


def _restored(value: Any, value_of: ValueOf) -> Any:
    if isinstance(value, str):
        text = PlainText(value_of)
        return text.feed(value) + text.flush()
    if isinstance(value, dict):
        return {_restored(key, value_of): _restored(item, value_of) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item, value_of) for item in value]
    return value
