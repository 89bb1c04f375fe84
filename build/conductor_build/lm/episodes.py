"""Groups of episodes: plans are written in batches, played side by side, and written for again.

A round is written for all episodes that go on at once, and played at once: writing wants the model,
playing waits for workers. A plan that is none (only without the mask) is not played.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from conductor_build.live.environment import Environment, Outcome, Session
from conductor_build.live.game import Game
from conductor_build.reward import Spent, Terms, worth

if TYPE_CHECKING:
    import torch

    from conductor.core import PlanRequest
    from conductor.plan.language import Plan
    from conductor_build.lm.policy import PlanPolicy, Written
    from conductor_build.lm.tokens import Ask, Writer

_T = TypeVar("_T")


@dataclass(frozen=True)
class Turn:
    """A plan that was written, and what for."""

    ask: Ask
    written: Written


@dataclass
class Episode:
    """One game, played once."""

    game: Game
    turns: list[Turn] = field(default_factory=list)
    outcome: Outcome | None = None
    """None as long as it is played, and for ever if a plan did not parse."""

    @property
    def parsed(self) -> bool:
        return all(turn.written.plan is not None for turn in self.turns)

    @property
    def void(self) -> str | None:
        """Why it teaches nothing, if it does not."""
        return None if self.outcome is None else self.outcome.void

    def reward(self, terms: Terms) -> float | None:
        """What it is worth; None when it is void."""
        if not self.parsed or self.outcome is None:
            return 0.0
        return value(self.game, self.outcome, terms)


UTILITY = Terms("utility", price=1.0, floor=float("-inf"))
"""Quality less lambda x cost: what reports compare, whatever was learned from."""


def value(game: Game, outcome: Outcome, terms: Terms) -> float | None:
    """What a play is worth; None when it is void."""
    if outcome.quality is None:
        return None
    spent = Spent(outcome.cost_usd_per_1k, outcome.rounds, outcome.output_tokens, outcome.seconds)
    return worth(
        terms, parsed=True, quality=outcome.quality, cost_weight=game.cost_weight, spent=spent
    )


@dataclass(frozen=True)
class Sampling:
    """How plans are written."""

    group: int = 1
    temperature: float = 1.0
    max_tokens: int = 256
    constrained: bool = True


@dataclass(frozen=True)
class Rollout:
    """Groups of episodes, each of one game, and the seconds that writing and playing took."""

    groups: tuple[tuple[Episode, ...], ...]
    write_s: float
    play_s: float

    @property
    def episodes(self) -> list[Episode]:
        return [episode for group in self.groups for episode in group]


Close = Callable[[], Coroutine[Any, Any, None]]


async def nothing() -> None:
    """Where there is nothing to be closed."""


class Players:
    """Plays plans: an environment, and the one event loop that its sessions live in."""

    def __init__(self, environment: Environment, close: Close = nothing) -> None:
        """`close` is awaited on the loop at the end."""
        self.environment, self._close = environment, close
        self._runner = asyncio.Runner()

    def __enter__(self) -> Players:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    def play(self, waiting: Sequence[_Seat]) -> None:
        """Play the last plan of every episode that waits, side by side. Raises what the first of
        them raises: no more money, a replay that lacks an answer."""
        self._runner.run(_together(map(self._one, waiting)))

    def play_plans(self, games: Sequence[Game], plans: Sequence[Plan]) -> list[Outcome]:
        """Play one plan for each game, without a further round."""
        return self._runner.run(_together(map(self._once, games, plans)))

    async def _once(self, game: Game, plan: Plan) -> Outcome:
        session = self.environment.open(game)
        await session.play(plan, False)
        return session.outcome()

    async def _one(self, seat: _Seat) -> None:
        """Play a round. It is looked at whenever a further one may follow."""
        request, seat.request = seat.request, None
        plan = seat.episode.turns[-1].written.plan
        if plan is None or request is None:
            return
        if seat.session is None:
            seat.session = self.environment.open(seat.episode.game)
        seat.request = await seat.session.play(plan, request.rounds_left > 0)
        if seat.request is None:
            seat.episode.outcome = seat.session.outcome()


async def _together(plays: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """All of them side by side; the first error ends the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play) for play in plays]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


@dataclass(eq=False)
class _Seat:
    """An episode being played. `request` is what the next plan is for; None: it has ended."""

    episode: Episode
    request: PlanRequest | None
    session: Session | None = None


def roll_out(
    policy: PlanPolicy,
    writer: Writer,
    players: Players,
    games: Sequence[Game],
    sampling: Sampling,
    generator: torch.Generator | None,
) -> Rollout:
    """Play every game `sampling.group` times to its end; greedily without a generator."""
    groups = [[_Seat(Episode(game), game.request) for _ in range(sampling.group)] for game in games]
    waiting, each = [seat for group in groups for seat in group], sampling.group
    write_s = play_s = 0.0
    while waiting:
        begun = time.monotonic()
        asks = [writer.ask(_request(seat)) for seat in waiting[::each]]
        plans = policy.write(
            asks, each, generator, constrained=sampling.constrained,
            temperature=sampling.temperature, max_tokens=sampling.max_tokens,
        )  # fmt: skip
        _note(waiting, asks, plans)
        written = time.monotonic()
        players.play(waiting)
        write_s, play_s = write_s + written - begun, play_s + time.monotonic() - written
        waiting, each = [seat for seat in waiting if seat.request is not None], 1
    return Rollout(tuple(tuple(s.episode for s in group) for group in groups), write_s, play_s)


def _request(seat: _Seat) -> PlanRequest:
    assert seat.request is not None
    return seat.request


def _note(
    waiting: Sequence[_Seat], asks: Sequence[Ask], plans: Sequence[Sequence[Written]]
) -> None:
    """Give every seat its plan: those of one ask sit side by side."""
    turns = [Turn(ask, one) for ask, group in zip(asks, plans, strict=True) for one in group]
    for seat, turn in zip(waiting, turns, strict=True):
        seat.episode.turns.append(turn)
