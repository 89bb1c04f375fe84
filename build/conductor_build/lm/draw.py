"""Draws games: a question, a pool, its order, prices and permissions, limits, a cost preference.

Every game hangs on the recipe's seed, what it is for and its own number alone: not on how many are
drawn beside it, so that several processes can share out a batch, and a resumed training draws what
an unbroken one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from conductor.core import Candidate, Flow, PlanRequest, Price, Worker
from conductor.run.exchange import Limits
from conductor_build.live.game import Game
from conductor_build.lm.recipe import Draw, Rounds
from conductor_build.tasks.common import Task

CHARS_A_TOKEN = 4
"""By which a question's tokens are estimated for prices, as the appliance does for requests."""
_VEILED = 0.5
"""Share of a pool that is veiled, in a game in which some are."""
_CLEAR, _REDACTED = 0, 1
"""Classes of data: what the question is, and what `redact` makes of it."""


class Purpose(IntEnum):
    """What games are drawn for. Each has games of its own."""

    TRAINING = 0
    HELD_OUT = 1
    WARM_START = 2
    REPORTED = 3


@dataclass(frozen=True, eq=False)
class Ground:
    """What games are drawn from: tasks with their shares, and all workers."""

    tasks: tuple[tuple[Task, float], ...]
    workers: tuple[Worker, ...]


@dataclass(frozen=True)
class Dealer:
    """Draws games of one training."""

    ground: Ground
    draw: Draw
    rounds: Rounds
    seed: int

    def games(self, purpose: Purpose, first: int, count: int) -> tuple[Game, ...]:
        """The games with numbers from `first` on."""
        return tuple(self.game(purpose, number) for number in range(first, first + count))

    def game(self, purpose: Purpose, number: int) -> Game:
        """The game of that number."""
        rng = np.random.default_rng((self.seed, int(purpose), number))
        task, index = _question(self.ground, rng)
        workers, veiled = _pool(self.ground.workers, self.draw, rng)
        limits = _limits(self.draw, self.rounds, rng)
        low, high = np.log(self.draw.weights)
        weight = float(np.exp(rng.uniform(low, high)))
        example = task[index]
        request = PlanRequest(
            request_id=f"{purpose.name.lower()}-{number}",
            question=example.question,
            candidates=candidates(workers, veiled),
            prompt_tokens=1 + len(example.question) // CHARS_A_TOKEN,
            max_steps=limits.max_steps,
            cost_weight=weight,
            rounds_left=limits.max_rounds - 1,
            calls_left=limits.max_calls,
            may_redact=bool(veiled),
            flow=_flow(len(workers), veiled) if veiled else None,
        )
        return Game(
            task=task, example=example, request=request, workers=workers, limits=limits,
            cost_weight=weight, seed=int(rng.integers(2**31)),
        )  # fmt: skip


def _question(ground: Ground, rng: np.random.Generator) -> tuple[Task, int]:
    shares = np.array([share for _, share in ground.tasks])
    task = ground.tasks[int(rng.choice(len(shares), p=shares / shares.sum()))][0]
    return task, int(rng.integers(len(task)))


def _pool(
    everybody: Sequence[Worker], draw: Draw, rng: np.random.Generator
) -> tuple[tuple[Worker, ...], frozenset[int]]:
    """Workers in their order, and the ordinals of those that are veiled."""
    if rng.random() < draw.fixed:
        return tuple(everybody), frozenset()
    low, high = (min(end, len(everybody)) for end in draw.pool)
    wanted = int(rng.integers(low, high + 1))
    chosen = rng.permutation(len(everybody))[:wanted].tolist()
    kept = [place for place in chosen if rng.random() >= draw.refused] or chosen[:1]
    factors = np.exp(rng.normal(0, draw.price_spread, len(kept)))
    workers = tuple(
        _priced(everybody[place], float(factor))
        for place, factor in zip(kept, factors, strict=True)
    )
    return workers, _veiled(len(workers), draw, rng)


def _veiled(count: int, draw: Draw, rng: np.random.Generator) -> frozenset[int]:
    """Whoever is not among them sees everything: at least one does."""
    if rng.random() >= draw.veiled or count < 2:
        return frozenset()
    hit = [place for place in rng.permutation(count).tolist() if rng.random() < _VEILED]
    return frozenset(hit[: count - 1])


def _priced(worker: Worker, factor: float) -> Worker:
    price = worker.price
    return replace(
        worker, price=Price(price.input_usd_per_mtok * factor, price.output_usd_per_mtok * factor)
    )


def candidates(
    workers: Sequence[Worker], veiled: frozenset[int] = frozenset()
) -> tuple[Candidate, ...]:
    """Workers as a planner sees them."""
    return tuple(
        Candidate(
            card=worker.card, price=worker.price, local=not worker.remote,
            context_tokens=worker.limits.context_tokens, veiled=place in veiled,
        )
        for place, worker in enumerate(workers)
    )  # fmt: skip


def _flow(count: int, veiled: frozenset[int]) -> Flow:
    everybody = frozenset(range(count))
    return Flow(
        question=_CLEAR,
        control=_CLEAR,
        heard=(),
        joins=((_CLEAR, _CLEAR), (_CLEAR, _REDACTED)),
        redacted=(_REDACTED, _REDACTED),
        sees=(everybody - veiled, everybody),
    )


def _limits(draw: Draw, rounds: Rounds, rng: np.random.Generator) -> Limits:
    steps = int(rng.integers(draw.max_steps[0], draw.max_steps[1] + 1))
    calls = int(rng.integers(draw.max_calls[0], draw.max_calls[1] + 1))
    further = rng.random() < rounds.share
    return Limits(max_steps=steps, max_calls=calls, max_rounds=rounds.most if further else 1)
