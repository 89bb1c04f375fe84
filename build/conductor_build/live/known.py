"""Right answers, found by the words of a question: what a simulated worker may look up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conductor_build.seen import normalise
from conductor_build.tasks.common import Example, Task, TaskError, Void, judged

MIDDLE = 3
"""Difficulty of questions whose task says nothing of it."""


@dataclass(frozen=True)
class Known:
    """A question of a task, with what is right and what somebody might take for it."""

    task: Task
    example: Example
    domain: str
    difficulty: int
    right: str
    wrong: tuple[str, ...]

    def is_right(self, answer: str) -> bool:
        """As the task's verifier judges; an answer that it cannot judge is not right."""
        try:
            return judged(self.task, self.example, answer) >= 0.5
        except Void:
            return False


class AnswerKey:
    """The questions of some tasks."""

    def __init__(self, places: Mapping[bytes, tuple[Task, int]]) -> None:
        self._places = dict(places)

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> AnswerKey:
        """All questions of tasks whose facts hold right answers: sketches, or files of exact and
        numeric ones. Raises `TaskError` for any other."""
        places: dict[bytes, tuple[Task, int]] = {}
        for task in tasks:
            for place in range(len(task)):
                example = task[place]
                _right(example)
                places[_digest(example.question)] = (task, place)
        return cls(places)

    def find(self, text: str) -> Known | None:
        """What is known of the question that `text` is, up to spelling."""
        found = self._places.get(_digest(text))
        if found is None:
            return None
        task, place = found
        example = task[place]
        right = _right(example)
        facts: Any = example.facts
        return Known(
            task=task,
            example=example,
            domain=task.domain(example),
            difficulty=int(facts.get("difficulty", MIDDLE)),
            right=right,
            wrong=tuple(map(str, facts.get("wrong", ()))) or _others(right),
        )


def _digest(question: str) -> bytes:
    told = normalise(question).encode("utf-8", "replace")
    return hashlib.blake2b(told, digest_size=16).digest()


def _right(example: Example) -> str:
    facts: Any = example.facts
    if "answer" in facts:
        return str(facts["answer"])
    if "number" in facts:
        return f"{facts['number']:g}"
    if "accepted" in facts:
        return str(facts["accepted"][0])
    raise TaskError(
        "a simulated pool needs questions whose answers are written down: sketches, or a file of "
        "exact or numeric ones"
    )


def _others(right: str) -> tuple[str, ...]:
    """Wrong answers, where a task names none."""
    try:
        number = float(right)
    except ValueError:
        return (f"not {right}", right[::-1] + "?", "unknown")
    return tuple(f"{number + step:g}" for step in (1, -1, 10))
