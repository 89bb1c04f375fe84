"""Everybody who plays beside an LM conductor, in the same games and through the same environment.

Workers are chosen by what they did in training games (`baselines/livechoice.py`), for each game at
the lambda it has. Best-of-n and the vote get the tokens that the conductor took in that game, its
own among them; what is left over of one game goes to the next, so that their means agree as far as
one to `MOST_VOICES` answers a game can make them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines import live
from conductor_build.baselines.livechoice import (
    Measured,
    Offer,
    ablest,
    best,
    cheapest,
)
from conductor_build.evaluate.lmgames import domain
from conductor_build.evaluate.lmplays import Board, Play

if TYPE_CHECKING:
    from conductor.plan.language import Plan
    from conductor_build.live.game import Game
    from conductor_build.lm.episodes import Players

Plays = list[Play | None]
"""Of one policy, one a game; None where it takes no part."""
BEST_SINGLE, BEST_PER_TASK, ORACLE = "best_single", "best_single_per_task", "oracle"


@dataclass(frozen=True)
class Field:
    """The baselines over some judged games. `games` may be at any lambda."""

    board: Board
    measured: Measured
    workers: tuple[str, ...]
    seed: int

    def play(self, games: Sequence[Game], ours: Sequence[Play]) -> dict[str, Plays]:
        """Every baseline in every game; `ours` are the conductor's plays there."""
        singles = {f"single({name})": self._single(games, name) for name in self.workers}
        fixed = {name: self.board.play(plans) for name, plans in self._plans(games, ours).items()}
        return {**fixed, ORACLE: _oracle(games, list(singles.values())), **singles}

    def _single(self, games: Sequence[Game], name: str) -> Plays:
        places = [_place(game, name) for game in games]
        return self.board.play([None if one is None else live.single(one) for one in places])

    def _plans(self, games: Sequence[Game], ours: Sequence[Play]) -> dict[str, list[Plan]]:
        offers = [self.measured.offers(game) for game in games]
        chosen = [best(some, game.cost_weight) for some, game in zip(offers, games, strict=True)]
        ranked = [ablest(some) for some in offers]
        tokens = [play.tokens for play in ours]
        voices = affordable(tokens, [one.record.tokens for one in chosen])
        crowd = affordable(tokens, [_mean_tokens(some) for some in offers])
        return {
            BEST_SINGLE: [live.single(one.worker) for one in chosen],
            BEST_PER_TASK: [live.single(self._for_domain(game)) for game in games],
            "best_of_n": [
                live.best_of_n(one.worker, count) for one, count in zip(chosen, voices, strict=True)
            ],
            "vote_of_n": [
                live.vote([one.worker for one in some[:count]])
                for some, count in zip(ranked, crowd, strict=True)
            ],
            "cheap_then_strong": [
                live.cheap_then_strong(cheapest(some).worker, some[0].worker) for some in ranked
            ],
            "solve_then_check": [
                live.solve_then_check(some[0].worker, some[min(1, len(some) - 1)].worker)
                for some in ranked
            ],
            "fan_out": [live.fan_out([one.worker for one in s], s[0].worker) for s in ranked],
            "random_plans": [
                live.random_plan([one.worker for one in some], play.steps, self._rng(place))
                for place, (some, play) in enumerate(zip(offers, ours, strict=True))
            ],
        }

    def _for_domain(self, game: Game) -> int:
        return best(self.measured.offers(game, domain(game)), game.cost_weight).worker

    def _rng(self, place: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, place))


def measured_on(players: Players, games: Sequence[Game]) -> Measured:
    """Let every worker of training games answer each of them alone."""
    board, answers = Board(players, games), []
    for name in dict.fromkeys(worker.id for game in games for worker in game.workers):
        places = [_place(game, name) for game in games]
        plays = board.play([None if one is None else live.single(one) for one in places])
        answers += [
            (name, domain(game), play.outcome)
            for game, play in zip(games, plays, strict=True)
            if play is not None
        ]
    return Measured.of(answers)


def affordable(budgets: Sequence[float], prices: Sequence[float]) -> list[int]:
    """How many answers of so many tokens each the budgets allow, 1 to `MOST_VOICES` a game; what
    one game leaves, less than an answer, goes to the next."""
    found, left = [], 0.0
    for budget, price in zip(budgets, prices, strict=True):
        share = left + (budget / price if price > 0 else 1.0)
        count = min(live.MOST_VOICES, max(1, int(share)))
        left = min(max(share - count, -1.0), 1.0)
        found.append(count)
    return found


def _place(game: Game, name: str) -> int | None:
    """The ordinal of a worker that may see the question."""
    for place, (worker, seen) in enumerate(zip(game.workers, game.request.candidates, strict=True)):
        if worker.id == name and not seen.veiled:
            return place
    return None


def _mean_tokens(offers: Sequence[Offer]) -> float:
    return float(np.mean([one.record.tokens for one in offers]))


def _oracle(games: Sequence[Game], singles: Sequence[Plays]) -> Plays:
    """Of each game the single worker whose utility turned out highest, of equal ones the cheaper;
    void where any of them is."""
    found: Plays = []
    for place, game in enumerate(games):
        plays = [one for plays in singles if (one := plays[place]) is not None]
        void = next((one for one in plays if one.outcome.quality is None), None)
        found.append(
            void or max(plays, key=lambda one: _worth(one, game.cost_weight), default=None)
        )
    return found


def _worth(play: Play, lam: float) -> tuple[float, float]:
    cost = play.outcome.cost_usd_per_1k
    return (play.outcome.quality or 0.0) - lam * cost, -cost
