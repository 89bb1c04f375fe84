"""Shape what a worker streams into what the API promises: same ids, one form.

Every back-end differs a little in what it leaves out, doubles or misplaces; clients see one shape.
Pure: no I/O, no clock. Rooms of their own: tool calls (`toolcalls.py`), token counts (`usage.py`),
plain answers (`plain.py`).
"""

from __future__ import annotations

from typing import Any

from conductor.core import Body, Failure, Usage
from conductor.errors import WorkerError
from conductor.run.answers import usage_body
from conductor.run.toolcalls import ToolCalls
from conductor.run.usage import Reported

# More than the 8 that a client may ask for; a worker that sends more is broken or hostile.
MAX_CHOICES = 16

# What back-ends say for the five reasons the API knows.
_FINISH = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "function_call",
    "max_tokens": "length",
    "model_length": "length",
    "tool_use": "tool_calls",
    "safety": "content_filter",
}
_BYTES_PER_TOKEN = 4


class ChunkShaper:
    """Shapes one streamed answer: `feed` each upstream chunk, then `finish` once it has ended.

    `prompt_tokens` is an estimate, used only when the worker reports no usage.
    """

    def __init__(
        self,
        id: str,
        created: int,
        model: str,
        include_usage: bool,
        *,
        prompt_tokens: int = 0,
    ) -> None:
        self._id = id
        self._head = {
            "id": id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._include_usage = include_usage
        self._choices: list[_Choice] = []
        self._reported: Reported | None = None
        self._prompt_tokens = prompt_tokens

    @property
    def usage(self) -> Usage:
        """What the worker reported so far, else an estimate from what it has sent."""
        if self._reported is not None:
            return self._reported.usage
        tokens = sum(choice.estimated_tokens for choice in self._choices)
        return Usage(self._prompt_tokens, tokens, estimated=True)

    @property
    def began(self) -> bool:
        """Whether anything has come that a client would see."""
        return any(choice.deltas for choice in self._choices)

    def feed(self, chunk: Body) -> list[Body]:
        """The chunks to send for one upstream chunk: none, one or several.

        Raises:
            WorkerError: MALFORMED, for what is no chunk of a chat completion.
        """
        self._reported = Reported.read(chunk.get("usage")) or self._reported
        out: list[Body] = []
        try:
            for position, entry in enumerate(self._entries(chunk)):
                out.extend(self._shape(position, entry))
        except WorkerError as error:
            error.began = self.began
            raise
        return out

    def finish(self, earlier: Usage | None = None) -> list[Body]:
        """The last chunks: a finish reason for every choice, then the usage if it was asked for.

        `earlier` is what other steps of the same request used; the client is told the sum.
        """
        if not self._choices:
            raise malformed("no choice came")
        out = [
            self._chunk(choice.index, {}, choice.finish_reason, None) for choice in self._choices
        ]
        if self._include_usage:
            out.append({**self._head, "choices": [], "usage": self.usage_body(earlier)})
        return out

    def usage_body(self, earlier: Usage | None = None) -> Body:
        """The `usage` object of an answer."""
        details = self._reported.details if self._reported is not None else {}
        total = self.usage if earlier is None else self.usage + earlier
        return {**usage_body(total), **details}

    def _entries(self, chunk: Body) -> list[dict[str, Any]]:
        entries = chunk.get("choices")
        if entries is None and self._reported is not None:
            return []  # some send their usage without the empty list
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise malformed("choices is no list of objects")
        return entries

    def _shape(self, position: int, entry: dict[str, Any]) -> list[Body]:
        index = entry.get("index", position)
        if type(index) is not int or not 0 <= index < MAX_CHOICES:
            raise malformed("a choice has no usable index")
        out = self._open_up_to(index)
        for delta, logprobs in self._choices[index].take(entry):
            out.append(self._chunk(index, delta, None, logprobs))
        return out

    def _open_up_to(self, index: int) -> list[Body]:
        """The first chunks of choices not yet begun, in order: clients append them to a list."""
        opened = [_Choice(self._id, new) for new in range(len(self._choices), index + 1)]
        self._choices.extend(opened)
        return [self._chunk(choice.index, _opening(), None, None) for choice in opened]

    def _chunk(self, index: int, delta: Body, reason: str | None, logprobs: Any) -> Body:
        entry: Body = {"index": index, "delta": delta, "finish_reason": reason}
        if logprobs is not None:
            entry["logprobs"] = logprobs
        chunk: Body = {**self._head, "choices": [entry]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk


class _Choice:
    """One choice of the answer: its first delta, its text, its calls, its end."""

    def __init__(self, completion_id: str, index: int) -> None:
        self.index = index
        self.deltas = 0
        self._calls = ToolCalls(f"{completion_id}/{index}")
        self._text_bytes = 0
        self._reason: str | None = None

    @property
    def estimated_tokens(self) -> int:
        """Workers send about a token a delta, unless they send more in one."""
        text_bytes = self._text_bytes + self._calls.text_bytes
        return max(self.deltas, -(-text_bytes // _BYTES_PER_TOKEN))

    def take(self, entry: dict[str, Any]) -> list[tuple[Body, Any]]:
        """The (delta, logprobs) pairs to send for one upstream entry."""
        delta = entry.get("delta")
        if delta is None:
            delta = {}
        if not isinstance(delta, dict):
            raise malformed("a delta is no object")
        reason = entry.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._reason = _FINISH.get(reason.lower(), "stop")
        logprobs = entry.get("logprobs")
        deltas = self._split(delta) or ([] if logprobs is None else [{}])
        return [
            (delta, logprobs if place == len(deltas) - 1 else None)
            for place, delta in enumerate(deltas)
        ]

    @property
    def finish_reason(self) -> str:
        reason = self._reason or "stop"
        return "tool_calls" if reason == "stop" and self._calls.seen else reason

    def _split(self, delta: dict[str, Any]) -> list[Body]:
        """What the delta says, as one delta for the text and further ones for the tool calls."""
        rest = {
            key: value
            for key, value in delta.items()
            if value not in (None, "") and key not in ("role", "content", "tool_calls")
        }
        content = _text_of(delta.get("content"))
        if content:
            rest["content"] = content
        calls = self._calls.take(delta.get("tool_calls"))
        out = [rest, *calls] if rest else calls
        self.deltas += len(out)
        self._text_bytes += sum(map(_text_length, rest.values()))
        return out


def _opening() -> Body:
    return {"role": "assistant", "content": ""}


def _text_of(content: Any) -> str:
    """The text of a `content`: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            part["text"]
            for part in content
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return ""


def malformed(what: str) -> WorkerError:
    """What an answer is that cannot be shaped."""
    return WorkerError(Failure.MALFORMED, what)


def _text_length(value: Any) -> int:
    return len(value.encode()) if isinstance(value, str) else 0
