"""Answers in wire form: one that the appliance gives itself, and usage summed over all steps.

The client's `usage` is what its request cost in tokens, over every step of the plan, so that no
orchestration token is hidden.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from conductor.core import Body, Usage


@dataclass(frozen=True)
class Said:
    """A whole text to be given as the answer, plain or in chunks. `created` in Unix seconds."""

    id: str
    created: int
    model: str
    text: str
    usage: Usage

    def body(self) -> Body:
        """The plain answer."""
        message = {"role": "assistant", "content": self.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": usage_body(self.usage),
        }

    async def chunks(self) -> AsyncIterator[Body]:
        """The same as a stream, with its usage chunk at the end."""
        head = self._head("chat.completion.chunk")
        for delta, finish in (
            ({"role": "assistant", "content": ""}, None),
            ({"content": self.text}, None),
            ({}, "stop"),
        ):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield {**head, "choices": [choice], "usage": None}
        yield {**head, "choices": [], "usage": usage_body(self.usage)}

    def _head(self, kind: str) -> Body:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def usage_body(usage: Usage) -> Body:
    """Usage as the OpenAI API writes it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def with_usage(body: Body, earlier: Usage) -> Body:
    """`body`, an answer or a chunk, with what earlier steps used added to its usage, if any."""
    usage = body.get("usage")
    if not usage or not (earlier.prompt_tokens or earlier.completion_tokens):
        return body
    own = Usage(usage["prompt_tokens"], usage["completion_tokens"])
    return {**body, "usage": {**usage, **usage_body(own + earlier)}}


async def add_usage(chunks: AsyncIterator[Body], earlier: Usage) -> AsyncIterator[Body]:
    """`with_usage` for every chunk of a stream."""
    async for chunk in chunks:
        yield with_usage(chunk, earlier)
