"""What a worker was shown, read back from its messages: for workers that are none.

`run/messages.py` says how messages are put together; a test holds the two to each other. A real
worker reads them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from conductor.chat.messages import text_of
from conductor.core import Body
from conductor.run.messages import DEFAULT_INSTRUCTION

STATED = "The problem: "
"""Begins the text by which a simulated worker hands a question on."""
_RESULT = re.compile(r"^Result of step \d{1,2}(?: \(its task: .*\))?:\n", re.M)


@dataclass(frozen=True)
class Brief:
    """One step, as its worker sees it. `conversation` is the client's own text, empty where it is
    not shown; `instruction` is empty when the step has none of its own."""

    conversation: str
    results: tuple[str, ...]
    instruction: str

    def candidates(self) -> Iterator[str]:
        """Every text that may be the question, the likeliest first."""
        for text in (self.conversation, *self.results, self.instruction):
            if text:
                yield text
                if STATED in text:
                    yield text.partition(STATED)[2]


def read(messages: Sequence[Body]) -> Brief:
    """The brief that these messages are. Training questions are conversations of one message."""
    *before, last = [text_of(message) for message in messages] or [""]
    if before:
        return _briefed("\n".join(before), last)
    if _RESULT.match(last):
        return _briefed("", last)
    return Brief(last, (), "")


def _briefed(conversation: str, text: str) -> Brief:
    heads = list(_RESULT.finditer(text))
    results = [
        text[head.end() : after.start() if after else len(text)].strip("\n")
        for head, after in zip_longest(heads, heads[1:])
    ]
    instruction = text
    if results:
        results[-1], _, instruction = results[-1].rpartition("\n\n")
    if instruction == DEFAULT_INSTRUCTION:
        instruction = ""
    return Brief(conversation, tuple(results), instruction)
