"""What a step's worker is shown: pure functions from plan and results to chat messages.

A step that sees the question and nothing else, with no instruction of its own, gets the client's
messages unchanged: a one-step plan is a pass-through. Every other step gets one further user
message that holds the earlier answers it may see, and then its instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from conductor.chat.messages import text_of
from conductor.core import Body

DEFAULT_INSTRUCTION = "Answer the request above."

Place = tuple[Any, ...]
"""Where a text stands in an answer: names and numbers."""

_NO_TEXTS = frozenset({"role", "id", "type", "index", "tool_call_id"})

_SEAM = 512
"""Characters on either side of a seam."""


@dataclass(frozen=True)
class Shown:
    """An earlier step's answer as a later step sees it. `step` counts from 0."""

    step: int
    subtask: str
    answer: str


def step_messages(
    messages: Sequence[Body], *, question: bool, shown: Sequence[Shown], subtask: str
) -> list[Body]:
    """The messages of one step; `question` tells whether it sees the client's conversation."""
    base = list(messages) if question else []
    if question and not shown and not subtask:
        return base
    return [*base, {"role": "user", "content": _brief(shown, subtask)}]


def conversation(messages: Sequence[Body]) -> list[tuple[str, str]]:
    """The client's messages as texts, each with what tells who said it: nothing, when there is
    only one."""
    said = [(f"{message.get('role', '')}: ", text_of(message)) for message in messages]
    return [("", said[0][1])] if len(said) == 1 else [one for one in said if one[1]]


def seams(texts: Sequence[str]) -> list[str]:
    """Where any two texts meet when the later follows the earlier: a secret may be dealt out over
    two that each say nothing."""
    return [earlier[-_SEAM:] + later[:_SEAM] for earlier, later in combinations(texts, 2)]


def added_bytes(shown: Sequence[Shown], subtask: str) -> int:
    """UTF-8 bytes of what a step's worker has to read beyond the conversation; for estimates."""
    return len(_brief(shown, subtask).encode()) if shown or subtask else 0


def _brief(shown: Sequence[Shown], subtask: str) -> str:
    parts = [_result(item) for item in shown]
    parts.append(subtask or DEFAULT_INSTRUCTION)
    return "\n\n".join(parts)


def _result(item: Shown) -> str:
    task = f" (its task: {item.subtask})" if item.subtask else ""
    return f"Result of step {item.step + 1}{task}:\n{item.answer}"


def answer_texts(said: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """All that a message or a delta says, reasoning and the arguments of calls included, each text
    with a name that it has in every delta."""
    if isinstance(said, str):
        yield place, said
    elif isinstance(said, dict):
        for name, value in said.items():
            if name not in _NO_TEXTS:
                yield from answer_texts(value, (*place, name))
    elif isinstance(said, list):
        for number, item in enumerate(said):
            at = item.get("index", number) if isinstance(item, dict) else number
            yield from answer_texts(item, (*place, at))


def body_texts(body: Body) -> Iterator[str]:
    """All that a plain answer says, in all its choices."""
    for choice in body.get("choices") or ():
        for _, text in answer_texts(choice.get("message")):
            yield text


def answer_text(body: Body) -> str:
    """The text of the first choice, which may be a refusal: that is an answer, too. Empty when
    there is none (a bare tool call)."""
    choices = body.get("choices") or [{}]
    message = choices[0].get("message") or {}
    texts = [text for text in (message.get("content"), message.get("refusal")) if text]
    return texts[0] if texts and isinstance(texts[0], str) else ""
