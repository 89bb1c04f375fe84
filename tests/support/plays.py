"""Games to be played in tests: one question, some workers, and a caller that says what it is told.

caller = Saying({"w1": "43"})
outcome = await played(Executed(caller, simulated=True), game(3), "0 q -\n")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from conductor.core import (
    Call,
    Candidate,
    Card,
    Destination,
    Flow,
    PlanRequest,
    Price,
    Reply,
    TcpEndpoint,
    Usage,
    Worker,
    WorkerLimits,
)
from conductor.errors import WorkerError
from conductor.labels import Clearance
from conductor.plan.language import parse
from conductor.run.exchange import Limits
from conductor_build.live.environment import Environment, Outcome
from conductor_build.live.game import Game
from conductor_build.live.replies import reply
from conductor_build.tasks.common import Example

QUESTION = "A farmer has 17 sheep and buys 25 more. How many has he?"
FAR = Destination("far", "remote", Clearance(0), {"kind": "remote"}, "")
HERE = Destination("here", "local", Clearance(0), {"kind": "local"}, "")
LIMITS = Limits()
ONE_VEIL = Flow(
    question=0, control=0, heard=(), joins=((0, 0), (0, 1)), redacted=(1, 1),
    sees=(frozenset({0, 1}), frozenset({0, 1, 2})),
)  # fmt: skip
"""Of three candidates, the last of which sees redacted text alone."""


@dataclass
class Sheep:
    """One question, over and over; the right answer is 42."""

    judge: Callable[[str], float] = lambda answer: float("42" in answer)

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Example:
        return Example("sheep", QUESTION)

    def score(self, example: Example, answer: str) -> float:
        return self.judge(answer)

    def domain(self, example: Example) -> str:
        return "math"


@dataclass
class Saying:
    """Implements `core.Caller`: each worker says its text, or 42, or raises its error."""

    texts: Mapping[str, str | WorkerError] = field(default_factory=dict)
    seconds: float = 0.5
    made: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Who was called with which body."""

    @asynccontextmanager
    async def call(self, worker: Worker, call: Call) -> AsyncIterator[Reply]:
        self.made.append((worker.id, orjson.loads(call.body)))
        said = self.texts.get(worker.id, "42")
        if isinstance(said, WorkerError):
            raise said
        yield reply(said, Usage(40, 20), self.seconds)

    @property
    def workers(self) -> list[str]:
        return [name for name, _ in self.made]

    def shown(self, turn: int) -> str:
        """All that was said to the worker of one call."""
        return "\n\n".join(message["content"] for message in self.made[turn][1]["messages"])


def worker(name: str, destination: Destination = HERE, **limits: Any) -> Worker:
    return Worker(
        id=name,
        model=f"model-of-{name}",
        destination=destination,
        clearance=destination.clearance,
        endpoint=TcpEndpoint("127.0.0.1", 1),
        card=Card({"math": 0.5}, 10.0, "declared"),
        price=Price(1.0, 4.0),
        limits=WorkerLimits(**limits),
    )


def game(
    workers: int | tuple[Worker, ...] = 2,
    *,
    limits: Limits = LIMITS,
    veiled: int | None = None,
    seed: int = 7,
    task: Any = None,
    **changed: Any,
) -> Game:
    """A game over workers w0, w1, ...; `veiled` is the last one's place, if it is veiled."""
    pool = tuple(worker(f"w{n}") for n in range(workers)) if isinstance(workers, int) else workers
    candidates = [Candidate(w.card, w.price, not w.remote, w.limits.context_tokens) for w in pool]
    if veiled is not None:
        candidates[veiled] = replace(candidates[veiled], veiled=True)
        changed = {"flow": ONE_VEIL, "may_redact": True, **changed}
    task = task or Sheep()
    example = task[0]
    request = PlanRequest(
        request_id="r",
        question=example.question,
        candidates=tuple(candidates),
        prompt_tokens=30,
        rounds_left=limits.max_rounds - 1,
        calls_left=limits.max_calls,
    )
    return Game(task, example, replace(request, **changed), pool, limits, 0.03, seed)


async def played(environment: Environment, dealt: Game, *plans: str) -> Outcome:
    """The outcome of a game in which these plans are played, all but the last as looks."""
    session = environment.open(dealt)
    first = 0
    for turn, text in enumerate(plans):
        plan = parse(text, first)
        first += len(plan.steps)
        if await session.play(plan, look=turn + 1 < len(plans)) is None:
            break
    return session.outcome()
