"""Games whose outcome hangs on the plan alone, and a stand-in for what plays them.

An answer is right when the last step's worker is the one that the question means, and void when the
last worker gave it wrongly: a reward is known without calling anybody. Imports no torch: processes
that only play start in a second.
"""

from __future__ import annotations

from dataclasses import dataclass

from conductor.core import Card, Destination, PlanRequest, Price, TcpEndpoint, Worker
from conductor.labels import Clearance
from conductor.plan.language import Plan
from conductor_build.live.environment import Outcome, Session
from conductor_build.live.game import Game
from conductor_build.tasks.common import Example

WORKERS = 3


@dataclass(frozen=True)
class Named:
    """Questions that name the worker who answers them right."""

    count: int = 64

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example:
        return Example(str(index), f"Who is number {index % WORKERS}?", {"right": index % WORKERS})

    def score(self, example: Example, answer: str) -> float:
        return float(answer == str(example.facts["right"]))

    def domain(self, example: Example) -> str:
        return "general"


@dataclass
class Planned:
    """Implements `Session`: nothing is called."""

    game: Game
    plan: Plan | None = None
    rounds: int = 0

    async def play(self, plan: Plan, look: bool) -> PlanRequest | None:
        self.plan, self.rounds = plan, self.rounds + 1
        return self.game.request if look and self.rounds < self.game.limits.max_rounds else None

    def outcome(self) -> Outcome:
        if self.plan is None:
            raise RuntimeError("not played")
        steps = self.plan.steps
        last = steps[-1].worker if steps else None
        right = last == self.game.example.facts["right"]
        void = not right and last == WORKERS - 1
        return Outcome(
            quality=None if void else float(right),
            void="verifier:crashed" if void else None,
            cost_usd_per_1k=0.1 * len(steps),
            prompt_tokens=10,
            output_tokens=20 * len(steps),
            calls=len(steps),
            rounds=self.rounds,
            seconds=0.0,
            used=tuple(range(len(steps))),
        )


class Stand:
    """Implements `Environment`."""

    simulated = True

    def open(self, game: Game) -> Session:
        return Planned(game)


def workers() -> tuple[Worker, ...]:
    here = Clearance(0, frozenset())
    place = Destination("here", "local", here, {"kind": "local"}, "")
    return tuple(
        Worker(
            id=f"worker-{number}",
            model="none",
            destination=place,
            clearance=here,
            endpoint=TcpEndpoint("127.0.0.1", 9),
            card=Card({"general": 0.5 + number / 10}, 50.0, "declared"),
            price=Price(0.1, 0.2),
        )
        for number in range(WORKERS)
    )
