"""Answers in wire form: what they say they used, and how a streamed one begins."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from conductor.core import Body, Usage


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
