"""Asks the bare questions ahead: each worker each question once, so that training finds them there.

A step that is shown the question alone, with no instruction, asks its worker the same in every plan
of a game. These answers are had by playing the one-step plans, and so by the very bytes that later
plays will send. What steps with instructions ask cannot be known before they are written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from conductor.plan.language import Access, Plan, Step
from conductor.run.exchange import Limits
from conductor.run.sidebyside import all_of
from conductor_build.live.environment import Environment
from conductor_build.live.game import Game
from conductor_build.probe_journal import identity

Watch = Callable[[int], None]
"""Told after each answer how many there are."""


@dataclass
class Precomputed:
    """How many answers there are, and what is void, by why."""

    answered: int = 0
    void: Counter[str] = field(default_factory=Counter)


async def precompute(
    environment: Environment,
    games: Iterable[Game],
    *,
    at_once: int = 64,
    watch: Watch = lambda done: None,
) -> Precomputed:
    """Have every worker of every game asked its bare question, of equal ones once.

    Raises what `play` raises; what was answered until then is kept.
    """
    found = Precomputed()
    waiting = _bare(games)

    async def lane() -> None:
        for game, ordinal in waiting:
            session = environment.open(replace(game, limits=Limits(max_rounds=1)))
            await session.play(Plan((Step(ordinal, Access(question=True)),)), look=False)
            void = session.outcome().void
            if void is None:
                found.answered += 1
            else:
                found.void[void] += 1
            watch(found.answered)

    await all_of([asyncio.create_task(lane()) for _ in range(at_once)])
    return found


def _bare(games: Iterable[Game]) -> Iterator[tuple[Game, int]]:
    """Each different question to each different worker that may see it."""
    seen: set[tuple[str, str, int]] = set()
    for game in games:
        for ordinal, worker in enumerate(game.workers):
            key = (game.example.question, identity(worker), game.seed)
            if key not in seen and not game.request.candidates[ordinal].veiled:
                seen.add(key)
                yield game, ordinal
