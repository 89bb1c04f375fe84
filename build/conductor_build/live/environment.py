"""What plays games, and what is told of a play. Trainers and judges know nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from conductor.core import PlanRequest
from conductor.plan.language import Plan
from conductor_build.live.game import Game


@dataclass(frozen=True)
class Outcome:
    """What became of a play. Costs are by the prices of the game's candidates."""

    quality: float | None
    """Score of the answer, 0 to 1; None: void. 0 where the plan led to no answer."""
    void: str | None
    """Why there is no score: `worker:<failure>` or `verifier:<reason>`. To be counted, and left
    out: a void is never a 0 for the conductor."""
    cost_usd_per_1k: float
    """Of 1,000 such requests."""
    prompt_tokens: int
    output_tokens: int
    calls: int
    """Attempts at workers, failed ones too."""
    rounds: int
    seconds: float
    """Time that the workers took, as if each step waited for the slowest of the wave before it;
    that of a kept answer counts as it was when it was given."""
    used: tuple[int, ...]
    """Ordinals of the workers called, rising, one entry a call."""


class Session(Protocol):
    """One game being played, round by round."""

    async def play(self, plan: Plan, look: bool) -> PlanRequest | None:
        """Run a round; the next round's request, or None once the request has its answer (or will
        have none). `look` where there can be none, in the last round or over a plan that calls
        nobody, makes the round final. Raises `PlanError`, and nothing has happened, for a plan
        that does not fit."""

    def outcome(self) -> Outcome:
        """What became of it, once `play` has given None; raises `RuntimeError` before."""


class Environment(Protocol):
    """Opens games. One instance serves thousands of plays, on one event loop."""

    @property
    def simulated(self) -> bool:
        """Whether the answers are made up; every report says so."""

    def open(self, game: Game) -> Session:
        """Begin to play a game."""
