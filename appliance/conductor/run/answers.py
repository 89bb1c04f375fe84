"""Answers in wire form: one that the appliance gives itself, and how a streamed one begins."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
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

    async def chunks(self) -> AsyncGenerator[Body, None]:
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


async def until_content(chunks: AsyncIterator[Body]) -> list[Body]:
    """Read chunks up to and including the first that carries content or ends a choice."""
    head: list[Body] = []
    async for chunk in chunks:
        head.append(chunk)
        if any(_has_content(choice) for choice in chunk["choices"]):
            return head
    return head


async def chained(head: list[Body], rest: AsyncIterator[Body]) -> AsyncGenerator[Body, None]:
    """First `head`, then `rest`."""
    for chunk in head:
        yield chunk
    async for chunk in rest:
        yield chunk


def _has_content(choice: Body) -> bool:
    delta = choice["delta"]
    return choice["finish_reason"] is not None or any(
        value for key, value in delta.items() if key != "role"
    )
