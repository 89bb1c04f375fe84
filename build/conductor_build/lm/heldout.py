"""How good a policy is on questions that it never trained on, and what it is measured against.

    watched    played greedily now and then during training; may end it, and choose its weights
    reported   played before, after the warm start and at the end, and nothing hangs on it

Beside the policy stand the workers alone: each of them, and whoever the cards say is best for a
question. Means leave voids out and say how many there were. `utility` is quality - lambda x cost,
whatever the reward was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conductor.plan.language import Access, Plan, Step
from conductor_build.live.environment import Outcome
from conductor_build.live.game import Game
from conductor_build.lm.episodes import UTILITY, Episode, Players, value
from conductor_build.lm.teacher import Teacher
from conductor_build.reward import Terms


@dataclass(frozen=True)
class Standing:
    """Means over games that are not void."""

    games: int
    voids: int
    reward: float
    quality: float
    utility: float
    cost_usd_per_1k: float
    calls: float
    steps: float
    rounds: float
    output_tokens: float
    utilities: tuple[float | None, ...]
    """Of each game, None where it was void: for paired comparisons."""


def standing(episodes: Sequence[Episode], terms: Terms) -> Standing:
    """Of a policy's greedy plays."""
    rewards = [episode.reward(terms) for episode in episodes]
    utilities = [episode.reward(UTILITY) for episode in episodes]
    steps = [sum(_steps(turn.written.plan) for turn in one.turns) for one in episodes]
    outcomes = [episode.outcome for episode in episodes]
    return _standing(rewards, utilities, outcomes, steps)


def _steps(plan: Plan | None) -> int:
    return 0 if plan is None else len(plan.steps)


def _standing(
    rewards: Sequence[float | None],
    utilities: Sequence[float | None],
    outcomes: Sequence[Outcome | None],
    steps: Sequence[int],
) -> Standing:
    kept = [place for place, reward in enumerate(rewards) if reward is not None]
    played = [one for place in kept if (one := outcomes[place]) is not None]

    def mean(values: Sequence[float | None]) -> float:
        known = [one for one in values if one is not None]
        return float(np.mean(known)) if known else 0.0

    return Standing(
        games=len(rewards),
        voids=len(rewards) - len(kept),
        reward=mean(rewards),
        quality=sum(one.quality or 0.0 for one in played) / max(1, len(kept)),
        utility=mean(utilities),
        cost_usd_per_1k=mean([one.cost_usd_per_1k for one in played]),
        calls=mean([float(one.calls) for one in played]),
        steps=mean([float(steps[place]) for place in kept]),
        rounds=mean([float(one.rounds) for one in played]),
        output_tokens=mean([float(one.output_tokens) for one in played]),
        utilities=tuple(utilities),
    )


# -- who else could have answered ------------------------------------------------------------------


def single_workers(players: Players, games: Sequence[Game], terms: Terms) -> dict[str, Standing]:
    """Each worker alone, by its id, on the games whose pool it is in and where it may see all."""
    names = dict.fromkeys(worker.id for game in games for worker in game.workers)
    return {name: _alone(players, games, name, terms) for name in names}


def _alone(players: Players, games: Sequence[Game], name: str, terms: Terms) -> Standing:
    found = [
        (game, place)
        for game in games
        for place, worker in enumerate(game.workers)
        if worker.id == name and not game.request.candidates[place].veiled
    ]
    return _fixed(players, [game for game, _ in found], [place for _, place in found], terms)


def by_card(
    players: Players, games: Sequence[Game], domains: Sequence[str], terms: Terms
) -> Standing:
    """For each game the worker whose card, price and lambda promise most, alone."""
    places = []
    for game, domain in zip(games, domains, strict=True):
        worths = Teacher(game.request, domain, np.random.default_rng(0)).worths()
        veiled = np.array([one.veiled for one in game.request.candidates])
        places.append(int(np.argmax(np.where(veiled, -np.inf, worths))))
    return _fixed(players, games, places, terms)


def _fixed(
    players: Players, games: Sequence[Game], places: Sequence[int], terms: Terms
) -> Standing:
    plans = [Plan((Step(place, Access(question=True)),)) for place in places]
    outcomes = players.play_plans(games, plans)
    pairs = list(zip(games, outcomes, strict=True))
    return _standing(
        [value(game, one, terms) for game, one in pairs],
        [value(game, one, UTILITY) for game, one in pairs],
        outcomes,
        [1] * len(pairs),
    )


def plain(one: Standing) -> dict[str, float | int]:
    """As JSON, without the single games."""
    told = {name: figure for name, figure in vars(one).items() if name != "utilities"}
    return {name: round(figure, 6) for name, figure in told.items()}
