"""One question to be answered by one pool: what a plan is written for and played on."""

from __future__ import annotations

from dataclasses import dataclass

from conductor.core import PlanRequest, Worker
from conductor.run.exchange import Limits
from conductor_build.tasks.common import Example, Task


@dataclass(frozen=True)
class Game:
    """A question and the pool that it is put to.

    `request` is the first round's, with the candidates in the order of `workers`; it says what the
    workers are in this game: their cards, their prices, and which of them are veiled. `workers` are
    the real ones: what they really cost is paid for out of the run's account, whatever price was
    drawn for the game. `limits.max_total_steps` is always the language's own. Raises `ValueError`
    when the two lists do not belong together.
    """

    task: Task
    example: Example
    request: PlanRequest
    workers: tuple[Worker, ...]
    limits: Limits
    cost_weight: float
    seed: int
    """Of what workers sample; two games of one seed get the same answers to the same messages."""

    def __post_init__(self) -> None:
        if len(self.workers) != len(self.request.candidates):
            raise ValueError("a game has one candidate for each of its workers")
        if len({worker.id for worker in self.workers}) != len(self.workers):
            raise ValueError("two workers of a game have the same id")
