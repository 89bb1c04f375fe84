"""A table of recorded outcomes as a task: what is asked is real, what is answered is looked up.

Answers were recorded by what they conclude with, not word by word. So `answer` gives a stand-in
for each worker's: workers that agreed have the same one, which votes and `score` then read as they
would read the answer itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from conductor_build.outcomes import Table
from conductor_build.tasks.common import Example, Void, VoidReason, within

_AGREED, _ALONE = "recorded answer {}", "recorded answer of worker {}"
_STAND_IN = re.compile(r"recorded answer (?:of worker )?\d+")


class RecordedTask:
    """The prompts of a table. `domains` maps a table's tasks to the words of cards; one that it
    lacks is its own domain."""

    def __init__(self, table: Table, domains: Mapping[str, str] | None = None) -> None:
        self.table = table
        self._domains = domains or {}
        self._place = {prompt: place for place, prompt in enumerate(table.prompts)}

    def __len__(self) -> int:
        return len(self.table.prompts)

    def __getitem__(self, index: int) -> Example:
        place = within(self, index)
        return Example(self.table.prompts[place], self.table.questions[place])

    def answer(self, example: Example, worker: str) -> str:
        """What stands in for that worker's answer. Raises `Void` when none is recorded."""
        place, column = self._place[example.key], self.table.names.index(worker)
        if not np.isfinite(self.table.score[place, column]):
            raise Void(VoidReason.UNRECORDED)
        return self._stand_in(place, column)

    def score(self, example: Example, answer: str) -> float:
        """The recorded score of a stand-in; of one that several workers gave, their mean."""
        place = self._place[example.key]
        found = _STAND_IN.findall(answer)
        scores = [
            float(score)
            for column, score in enumerate(self.table.score[place])
            if found and np.isfinite(score) and self._stand_in(place, column) == found[-1]
        ]
        if not scores:
            raise Void(VoidReason.UNRECORDED)
        return sum(scores) / len(scores)

    def domain(self, example: Example) -> str:
        task = self.table.tasks[self._place[example.key]]
        return self._domains.get(task, task)

    def _stand_in(self, place: int, column: int) -> str:
        number = int(self.table.answer[place, column])
        return _AGREED.format(number) if number >= 0 else _ALONE.format(column)
