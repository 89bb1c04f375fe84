"""Plays of conductors and of fixed plans on the same games, and what each took.

The outcome of a plan does not hang on lambda: it is played once, for whichever policy it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor.plan.language import Plan, show
from conductor_build.evaluate.lmgames import with_room
from conductor_build.lm.episodes import Episode, Players, Sampling, roll_out

if TYPE_CHECKING:
    from conductor_build.live.environment import Outcome
    from conductor_build.live.game import Game
    from conductor_build.lm.policy import PlanPolicy

_WRITTEN_AT_ONCE = 16
_PLAYED_AT_ONCE = 64


@dataclass(frozen=True)
class Play:
    """One policy in one game."""

    outcome: Outcome
    plans: tuple[Plan, ...]
    """One a round."""
    read: int = 0
    """Tokens of the prompts that a conductor read, their fixed part among them."""
    written: int = 0
    """Tokens that it wrote."""

    @property
    def steps(self) -> int:
        return sum(len(plan.steps) for plan in self.plans)

    @property
    def tokens(self) -> int:
        """Of conductor and workers, read and written."""
        return self.read + self.written + self.outcome.prompt_tokens + self.outcome.output_tokens


class Board:
    """Plays fixed plans in some games, each once. Whoever plays has the language's own limits."""

    def __init__(self, players: Players, games: Sequence[Game]) -> None:
        self._players = players
        self._games = [with_room(game) for game in games]
        self._known: dict[tuple[int, str], Outcome] = {}

    def play(self, plans: Sequence[Plan | None]) -> list[Play | None]:
        """One plan for each game; None: it does not take part there, and nor does the answer."""
        wanted = [
            (place, plan)
            for place, plan in enumerate(plans)
            if plan is not None and (place, show(plan)) not in self._known
        ]
        for begin in range(0, len(wanted), _PLAYED_AT_ONCE):
            part = wanted[begin : begin + _PLAYED_AT_ONCE]
            games = [self._games[place] for place, _ in part]
            outcomes = self._players.play_plans(games, [plan for _, plan in part])
            for (place, plan), outcome in zip(part, outcomes, strict=True):
                self._known[place, show(plan)] = outcome
        return [
            None if plan is None else Play(self._known[place, show(plan)], (plan,))
            for place, plan in enumerate(plans)
        ]


def conducted(
    policy: PlanPolicy,
    players: Players,
    games: Sequence[Game],
    max_tokens: int,
    tick: Callable[[int], None] = lambda done: None,
) -> list[Play]:
    """Greedy plans of a conductor, under the mask, played to the end; `tick` hears how many."""
    plays: list[Play] = []
    for begin in range(0, len(games), _WRITTEN_AT_ONCE):
        part = games[begin : begin + _WRITTEN_AT_ONCE]
        sampling = Sampling(max_tokens=max_tokens)
        rollout = roll_out(policy, policy.writer, players, part, sampling, None)
        plays += [_play(episode, len(policy.writer.prefix)) for episode in rollout.episodes]
        tick(len(plays))
    return plays


def _play(episode: Episode, prefix: int) -> Play:
    assert episode.outcome is not None, "under the mask every text is a plan, and is played"
    plans = tuple(turn.written.plan for turn in episode.turns if turn.written.plan is not None)
    return Play(
        outcome=episode.outcome,
        plans=plans,
        read=sum(prefix + len(turn.ask.rest) for turn in episode.turns),
        written=sum(len(turn.written.tokens) for turn in episode.turns),
    )
