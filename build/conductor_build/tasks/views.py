"""Tasks made of tasks, without copying a question: slices, mixtures, what is held out.

Whether a question is held out depends on its words and a seed alone: not on where it stands, nor
on how many there are. So a longer task holds out the same ones, and a question that two tasks share
is on the same side in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from conductor_build.seen import normalise
from conductor_build.tasks.common import Example, Task, TaskError, within


@dataclass(frozen=True)
class Chosen:
    """The questions of `task` at `places`, in that order."""

    task: Task
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Example:
        return self.task[self.places[within(self, index)]]

    def score(self, example: Example, answer: str) -> float:
        return self.task.score(example, answer)

    def domain(self, example: Example) -> str:
        return self.task.domain(example)


def part(task: Task, start: int, stop: int, step: int = 1) -> Chosen:
    """The questions from `start` up to `stop`, as far as there are any."""
    return Chosen(task, range(len(task))[start:stop:step])


def held_out(task: Task, share: float, seed: int) -> tuple[Chosen, Chosen]:
    """For training, and held out: about `share` of the questions, drawn by their words and `seed`.

    Raises `TaskError` for a share that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise TaskError("the share that is held out lies between 0 and 1, such as 0.2")
    kept: list[int] = []
    held: list[int] = []
    for place in range(len(task)):
        (held if _draw(task[place].question, seed) < share else kept).append(place)
    return Chosen(task, kept), Chosen(task, held)


def _draw(question: str, seed: int) -> float:
    """A number from 0 to 1, the same for the same words on every machine."""
    told = f"{seed}\n{normalise(question)}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.sha256(told).digest()[:8]) / 2**64


class Mixture:
    """Several tasks as one: a question of each in turn, for as long as it has any.

    `tasks` are named, and a question's key begins with the name. Raises `TaskError` for two of one
    name.
    """

    def __init__(self, tasks: Sequence[tuple[str, Task]]) -> None:
        self._tasks = dict(tasks)
        if len(self._tasks) != len(tasks):
            raise TaskError("the tasks of a mixture need different names")
        rounds = max(map(len, self._tasks.values()), default=0)
        self._order = [
            (name, place)
            for place in range(rounds)
            for name, task in self._tasks.items()
            if place < len(task)
        ]

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Example:
        name, place = self._order[within(self, index)]
        example = self._tasks[name][place]
        return replace(example, key=f"{name}/{example.key}")

    def score(self, example: Example, answer: str) -> float:
        task, inner = self._inner(example)
        return task.score(inner, answer)

    def domain(self, example: Example) -> str:
        task, inner = self._inner(example)
        return task.domain(inner)

    def _inner(self, example: Example) -> tuple[Task, Example]:
        name, _, key = example.key.partition("/")
        return self._tasks[name], replace(example, key=key)
