"""Answers of workers as bodies of chat completions, with how long they took."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from conductor.core import Body, Usage

SECONDS = "seconds"
"""A field of ours in a body: how long the answer took when it was given. The daemon drops it."""


class WholeReply:
    """Implements `core.Reply` for an answer that is here."""

    def __init__(self, body: Body) -> None:
        self._body = body

    async def json(self) -> Body:
        return self._body

    def events(self) -> AsyncGenerator[Body, None]:
        raise NotImplementedError("plays do not stream")


def reply(text: str, usage: Usage, seconds: float) -> WholeReply:
    """The reply that says `text`."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    return WholeReply({"choices": [choice], "usage": counts, SECONDS: seconds})
