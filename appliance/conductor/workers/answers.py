"""Whether what a worker sent is a chat completion: whole, or chunk by chunk. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from conductor.core import Body, Failure
from conductor.errors import WorkerError
from conductor.workers.failures import in_band

MAX_DEPTH = 128
"""Levels of nesting. What is read must be written again, and writers manage fewer than readers."""


def completion(data: bytes, *, egress: bool = False) -> Body:
    """A plain answer. Raises `WorkerError`: `MALFORMED`, or what an error in its place says."""
    body = _json_object(data, began=False)
    if body.get("error"):
        raise in_band(body["error"], began=False, egress=egress)
    if not _choices(body):
        raise WorkerError(Failure.MALFORMED, "an answer without choices")
    return body


class StreamCheck:
    """Follows the events of one stream: what they hold, and whether its end is an end."""

    def __init__(self, *, egress: bool = False) -> None:
        self._egress = egress
        self._seen: set[object] = set()
        self._finished: set[object] = set()
        self.began = False
        """Content has come, so that no other worker may take over."""

    @property
    def finished(self) -> bool:
        """Every choice seen, and at least one, has its finish reason."""
        return bool(self._seen) and self._seen == self._finished

    def chunk(self, data: bytes) -> Body:
        """Read one event. Raises `WorkerError` for an error in it, or for nonsense."""
        chunk = _json_object(data, began=self.began)
        if chunk.get("error"):
            raise in_band(chunk["error"], began=self.began, egress=self._egress)
        choices = _choices(chunk)
        if choices is None:
            raise WorkerError(Failure.MALFORMED, "a chunk without choices", began=self.began)
        for choice in choices:
            self._note(choice)
        return chunk

    def done(self) -> None:
        """The stream's `[DONE]` has come. Raises `WorkerError` if nothing came before it."""
        if not self._seen:
            raise WorkerError(Failure.MALFORMED, "a stream without a choice")

    def cut(self) -> WorkerError:
        """What a stream that ends too early is."""
        return WorkerError(Failure.CUT, "the stream ended early", began=self.began)

    def _note(self, choice: Body) -> None:
        index = choice.get("index", 0)
        if not isinstance(index, int):
            raise WorkerError(Failure.MALFORMED, "a choice without index", began=self.began)
        self._seen.add(index)
        if choice.get("finish_reason"):
            self._finished.add(index)
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self.began |= any(value for key, value in delta.items() if key != "role")


def _json_object(data: bytes, *, began: bool) -> Body:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise WorkerError(Failure.MALFORMED, "not a JSON object", began=began)
    # Each level has a bracket, so that a short look at the bytes spares most answers the long one.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _too_deep(value):
        raise WorkerError(Failure.MALFORMED, "nested too deeply", began=began)
    return value


def _too_deep(value: Body) -> bool:
    """Whether there are more than `MAX_DEPTH` levels. Without recursion."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def _choices(body: Body) -> list[dict[str, Any]] | None:
    choices = body.get("choices")
    if isinstance(choices, list) and all(isinstance(choice, dict) for choice in choices):
        return choices
    return None
