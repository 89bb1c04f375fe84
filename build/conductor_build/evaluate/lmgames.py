"""Games that an LM conductor is judged on: those that its training reports on, at any lambda.

as drawn     each at the lambda that was drawn for it
at lambda    the same questions, pools, orders, prices and permissions, all at one lambda
with room    the same with the language's own limits, which baselines may use whatever the
             conductor's were
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conductor.plan.language import MAX_STEPS
from conductor.run.exchange import Limits
from conductor_build.lm.draw import Dealer, Purpose

if TYPE_CHECKING:
    from conductor_build.live.game import Game
    from conductor_build.lm.draw import Ground
    from conductor_build.lm.recipe import LmRecipe
    from conductor_build.lm.setting import Setting

WHOLE_POOL, DRAWN_POOLS = "Whole pool", "Pools drawn at random"
_GENERATED = ("sketches", "gym")
"""Kinds of task whose questions nobody minds to see in a report."""


@dataclass(frozen=True)
class Group:
    """Games that are reported together; `places` are theirs among all judged games."""

    title: str
    workers: tuple[str, ...]
    places: tuple[int, ...]


def judged(recipe: LmRecipe, setting: Setting, count: int) -> tuple[Game, ...]:
    """As drawn: those of `lm/judging.py`, and more of the same when `count` is higher."""
    dealer = Dealer(setting.reported, recipe.draw, recipe.rounds, recipe.seed)
    return dealer.games(Purpose.REPORTED, 0, count)


def for_choosing(recipe: LmRecipe, setting: Setting, count: int) -> tuple[Game, ...]:
    """Training questions put to the whole pool, at its own prices."""
    whole = replace(recipe.draw, fixed=1.0)
    dealer = Dealer(setting.training, whole, recipe.rounds, recipe.seed)
    return dealer.games(Purpose.TRAINING, 0, count)


def at(games: Sequence[Game], lam: float | None) -> tuple[Game, ...]:
    """All at one lambda; None: as drawn."""
    if lam is None:
        return tuple(games)
    return tuple(
        replace(game, cost_weight=lam, request=replace(game.request, cost_weight=lam))
        for game in games
    )


def with_room(game: Game) -> Game:
    """The game with the plan language's own limits, and no further round."""
    request = replace(game.request, max_steps=MAX_STEPS, calls_left=MAX_STEPS, rounds_left=0)
    limits = Limits(max_steps=MAX_STEPS, max_rounds=1, max_calls=MAX_STEPS)
    return replace(game, request=request, limits=limits)


def default_lambdas(recipe: LmRecipe) -> tuple[float, ...]:
    """Both ends of the range that lambdas are drawn from, and its middle on a log scale."""
    low, high = recipe.draw.weights
    points = (low, math.sqrt(low * high), high)
    return tuple(dict.fromkeys(float(f"{point:.2g}") for point in points))


def groups(games: Sequence[Game], ground: Ground) -> tuple[Group, ...]:
    """Games with the whole pool, and the others, as far as there are any."""
    names = tuple(worker.id for worker in ground.workers)
    whole = [game.workers == ground.workers for game in games]
    found = []
    for title, wanted in ((WHOLE_POOL, True), (DRAWN_POOLS, False)):
        places = tuple(place for place, is_whole in enumerate(whole) if is_whole is wanted)
        if places:
            found.append(Group(title, names, places))
    return tuple(found)


def generated(game: Game, recipe: LmRecipe, ground: Ground) -> bool:
    """Whether its question was made up by a program."""
    pairs = zip(recipe.tasks, ground.tasks, strict=True)
    return any(task is game.task and use.kind in _GENERATED for use, (task, _) in pairs)


def domain(game: Game) -> str:
    """What kind of question it is."""
    return game.task.domain(game.example)
