"""Answers of workers as bodies of chat completions, with how long they took; and what of a body
from elsewhere is believed.

A worker's endpoint is not ours: what it sends may be junk, and may be meant to mislead. Junk is a
failure of the worker, never an empty answer; counts that cannot be true are not taken over.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from conductor.core import Body, Failure, Reply, Usage
from conductor.errors import WorkerError
from conductor.run.messages import answer_text
from conductor.run.usage import Reported

SECONDS = "seconds"
"""A field of ours in a body: how long the answer took when it was given. The daemon drops it."""
_TEMPLATE_TOKENS = 1024
"""What a chat format may add to a prompt whose every byte is a token."""
_SAYS = ("content", "refusal")


class WholeReply:
    """Implements `core.Reply` for an answer that is here."""

    def __init__(self, body: Body) -> None:
        self._body = body

    async def json(self) -> Body:
        return self._body

    def events(self) -> AsyncGenerator[Body, None]:
        raise NotImplementedError("plays do not stream")


def seconds_of(answer: Reply, body: Body) -> float | None:
    """How long a kept or made-up answer took when it was given; None for a worker's own, whatever
    its body says."""
    return float(body[SECONDS]) if isinstance(answer, WholeReply) else None


def text_of(body: Body) -> str:
    """What a worker says; empty when it says nothing. Raises `WorkerError` (`MALFORMED`) for what
    is no chat completion."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict) or not message.keys() & {*_SAYS, "tool_calls"}:
        raise WorkerError(Failure.MALFORMED, "a choice without a message")
    if not all(isinstance(message.get(name), str | None) for name in _SAYS):
        raise WorkerError(Failure.MALFORMED, "a message that is no text")
    return answer_text(body)


def believed(body: Body, prompt_bytes: int, max_tokens: int) -> Usage | None:
    """The tokens that a body reports; None where it reports none, or more than there can be: a
    prompt token is at least a byte, and no more than `max_tokens` were to be written."""
    reported = Reported.read(body.get("usage"))
    if reported is None:
        return None
    usage = reported.usage
    possible = usage.prompt_tokens <= prompt_bytes + _TEMPLATE_TOKENS
    return usage if possible and 0 < usage.completion_tokens <= max_tokens else None


def reply(text: str, usage: Usage, seconds: float) -> WholeReply:
    """The reply that says `text`."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    return WholeReply({"choices": [choice], "usage": counts, SECONDS: seconds})
