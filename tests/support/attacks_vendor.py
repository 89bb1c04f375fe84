"""Vendors and local workers that say what an attack wants them to, on the simulated vendor's wire.

A worker whose model is `says:NAME` answers with what `Lines.say[NAME]` makes of the request: a
text, or a whole message. Streamed, it comes in pieces of `Lines.cut` characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from conductor.simulated import answers as wire
from conductor.simulated import behaviours
from conductor.simulated.acts import Acts, Send

Message = dict[str, Any]
Say = Callable[[dict[str, Any]], str | Message]


@dataclass
class Lines:
    """What the workers of one arena say. Who has no line repeats the last message of a user."""

    say: dict[str, Say] = field(default_factory=dict)
    cut: int = 3

    def respond(self, method: str, path: str, body: bytes) -> Acts:
        question = wire.read_question(body) if method == "POST" else None
        if question is None or not question.model.startswith("says:"):
            yield from behaviours.respond(method, path, body)
            return
        line = self.say.get(question.model.removeprefix("says:"))
        said = question.last_user if line is None else line(orjson.loads(body))
        message = {"content": said} if isinstance(said, str) else said
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        if not question.stream:
            whole = {"role": "assistant", "content": None, "refusal": None, **message}
            yield Send(wire.json_answer(200, wire.whole(question, whole, finish, 5)))
            return
        yield Send(wire.stream_head())
        for event in wire.events(question, [*self._deltas(message)], finish):
            yield Send(wire.framed(event))
        yield Send(wire.framed(wire.DONE) + wire.LAST)

    def _deltas(self, message: Message) -> Iterator[Message]:
        yield {"role": "assistant", "content": ""}
        for piece in self._pieces(message.get("content") or ""):
            yield {"content": piece}
        for index, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            yield {"tool_calls": [
                {**call, "index": index, "function": {**function, "arguments": ""}}
            ]}  # fmt: skip
            for piece in self._pieces(function["arguments"]):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    def _pieces(self, text: str) -> Iterator[str]:
        return (text[i : i + self.cut] for i in range(0, len(text), self.cut))

    @contextmanager
    def spoken(self) -> Iterator[None]:
        """Every simulated vendor speaks these lines."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("conductor.simulated.vendor.respond", self.respond)
            yield
