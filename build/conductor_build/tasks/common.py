"""What a task is: four methods. Views, generators and files of questions all have them.

An answer's score is 0 to 1. Where none can be had, since the verifier itself broke or did not end,
the score is *void* (`Void` is raised): who asked for it counts it and leaves it out. A void is
never a 0: that would teach a conductor that the worker was wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from conductor.errors import ConductorError


class TaskError(ConductorError):
    """A task cannot be made as asked: a package is missing, a file is wrong. Says what to do."""


class VoidReason(StrEnum):
    """Why there is no score: a closed list, for counting."""

    CRASHED = "crashed"  # the verifier failed
    TIMEOUT = "timeout"  # the verifier did not end
    NO_JAIL = "no_jail"  # what a model wrote could not be run locked down
    UNRECORDED = "unrecorded"  # no outcome is recorded for this answer


class Void(ConductorError):
    """An answer that could not be scored, through no fault of its own."""

    def __init__(self, reason: VoidReason) -> None:
        self.reason = reason
        super().__init__(f"no score: the verifier says {reason}")


@dataclass(frozen=True)
class Example:
    """One question. `key` tells it from every other one of its task, and stays the same from run
    to run; `facts` are the task's own, for `score`: never shown to a worker."""

    key: str
    question: str
    facts: Mapping[str, object] = field(default_factory=dict, repr=False)


class Task(Protocol):
    """A sequence of questions, and how an answer to one is judged."""

    def __len__(self) -> int:
        """How many questions there are."""

    def __getitem__(self, index: int) -> Example:
        """The question at `index`, always the same one. Raises `IndexError` outside 0 .. len-1:
        a negative index is not counted from the end."""

    def score(self, example: Example, answer: str) -> float:
        """0 to 1. `example` is one of this task's. May block. Raises `Void`."""

    def domain(self, example: Example) -> str:
        """What kind of question it is, in the words of cards: `math`, `code`, `general`, ..."""


def judged(task: Task, example: Example, answer: str) -> float:
    """`task.score`, whatever its verifier does: the one boundary for everything that is thrown.

    Raises `Void`, also for a score that is none.
    """
    try:
        score = task.score(example, answer)
    except Void:
        raise
    except Exception:  # noqa: BLE001 - whatever a verifier throws, the answer is not to blame
        raise Void(VoidReason.CRASHED) from None
    if not 0 <= score <= 1:  # nor is NaN
        raise Void(VoidReason.CRASHED)
    return score


def within(task: Task, index: int) -> int:
    """`index`, if the task has it; raises `IndexError`."""
    if not 0 <= index < len(task):
        raise IndexError(f"the task has {len(task)} questions")
    return index
