"""Judges an LM conductor: plays it, its untrained self and every baseline, and compares.

The same games are played as drawn, each at its own lambda, and at some lambdas all alike. A game in
which somebody's play was void is left out for everybody and counted, so that all are compared on
the same games; whoever is void in more than `TOO_MANY_VOIDS` of the games is left out instead, a
worker that is down for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.plays import EvaluationError, Plays
from conductor_build.bootstrap import DRAWS
from conductor_build.evaluate import lmgames, lmtraits
from conductor_build.evaluate.judge import CONDUCTOR, Evaluation, Judged
from conductor_build.evaluate.lmfield import BEST_PER_TASK, BEST_SINGLE, Field, measured_on
from conductor_build.evaluate.lmgames import Group
from conductor_build.evaluate.lmplays import Board, Play, conducted
from conductor_build.evaluate.pools import Pool
from conductor_build.evaluate.scores import (
    Difference,
    Resampling,
    Result,
    Score,
    differences,
    mean_differences,
    results,
)

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats
    from conductor_build.live.game import Game
    from conductor_build.lm.episodes import Players
    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.recipe import LmRecipe
    from conductor_build.lm.setting import Setting

ZERO_SHOT = "zero_shot"
"""The untrained base of the recipe, with the same prompt and mask."""
TOO_MANY_VOIDS = 0.25
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to judge. `games` None: as many as the recipe reports on; `lambdas` None: both ends and
    the middle of its range; `choosing`: training games that baselines are chosen on."""

    games: int | None = None
    lambdas: tuple[float, ...] | None = None
    choosing: int = 200
    seed: int = 0
    draws: int = DRAWS


@dataclass(frozen=True)
class Pass:
    """Everybody's plays of all games, at one lambda; None: as drawn."""

    lam: float | None
    weights: Floats
    """Lambda of each game."""
    plays: Mapping[str, Sequence[Play | None]]


@dataclass(frozen=True)
class Drawn:
    """Everybody's scores over the games as drawn, and the conductor's less each other's."""

    title: str
    scores: Mapping[str, Score]
    less: Mapping[str, Score]


@dataclass(frozen=True)
class LmEvaluation:
    """What was found. `at_lambdas` has the form of a pocket conductor's evaluation."""

    at_lambdas: Evaluation
    drawn: tuple[Drawn, ...]
    traits: lmtraits.Traits


def judge(
    recipe: LmRecipe,
    setting: Setting,
    players: Players,
    policies: Mapping[str, PlanPolicy],
    options: Options,
    say: Say = lambda text: None,
) -> LmEvaluation:
    """Judge `policies`, of which `CONDUCTOR` is one and compared with all others.

    Raises `EvaluationError` when no game is left, `CostReached` when the money is.
    """
    games = lmgames.judged(recipe, setting, options.games or recipe.held_out.games)
    choosing = lmgames.for_choosing(recipe, setting, options.choosing)
    say(f"{len(choosing)} training games: every worker alone")
    workers = tuple(worker.id for worker in setting.reported.workers)
    board = Board(players, games)
    field = Field(board, measured_on(players, choosing), workers, options.seed)
    stand = _Stand(recipe, players, policies, field, say)
    lambdas = options.lambdas or lmgames.default_lambdas(recipe)
    passes = [stand.play(games, lam) for lam in (None, *lambdas)]
    traits = lmtraits.traits(
        passes, games, lmgames.groups(games, setting.reported), recipe, setting
    )
    say("plans without the mask")
    traits = traits.with_parsing(lmtraits.parse_rates(policies, games, recipe))
    resampling = Resampling(options.seed, options.draws)
    how = f"chosen on {len(choosing):,} training games"
    found = [
        _judged(group, passes, games, how, resampling)
        for group in lmgames.groups(games, setting.reported)
    ]
    return LmEvaluation(
        Evaluation(tuple(judged for judged, _ in found), resampling),
        tuple(drawn for _, drawn in found),
        traits,
    )


@dataclass(frozen=True)
class _Stand:
    """What all passes share."""

    recipe: LmRecipe
    players: Players
    policies: Mapping[str, PlanPolicy]
    field: Field
    say: Say

    def play(self, drawn: Sequence[Game], lam: float | None) -> Pass:
        games = lmgames.at(drawn, lam)
        said = "as drawn" if lam is None else f"at lambda {lam:g}"
        longest = max(stage.objective.max_tokens for stage in self.recipe.stages)

        def tick(name: str) -> Callable[[int], None]:
            return lambda done: self.say(f"{name} {said}: {done} of {len(games)} games")

        own = {
            name: conducted(policy, self.players, games, longest, tick(name))
            for name, policy in self.policies.items()
        }
        self.say(f"baselines {said}")
        others = self.field.play(games, own[CONDUCTOR])
        weights = np.array([game.cost_weight for game in games])
        return Pass(lam, weights, {**own, **others})


# -- one group of games -----------------------------------------------------------------------


def _judged(
    group: Group, passes: Sequence[Pass], games: Sequence[Game], how: str, resampling: Resampling
) -> tuple[Judged, Drawn]:
    names = _taking_part(group, passes)
    kept = _not_void(group, passes, names)
    tasks = [lmgames.domain(games[place]) for place in kept]
    drawn, *fixed = passes
    found: list[Result] = []
    less: list[Difference] = []
    utilities: dict[str, list[Floats]] = {name: [] for name in names}
    for one in fixed:
        assert one.lam is not None
        plays = {name: _plays(one.plays[name], kept) for name in names}
        found += results(plays, one.lam, tasks, _chosen(one, kept, games), resampling)
        others = {name: played for name, played in plays.items() if name != CONDUCTOR}
        less += differences(plays[CONDUCTOR], others, one.lam, resampling)
        for name, played in plays.items():
            utilities[name].append(played.utility(one.lam))
    less += mean_differences(utilities.pop(CONDUCTOR), utilities, resampling)
    pool = Pool(group.title, group.workers, tuple(one.lam for one in fixed if one.lam is not None))
    void = len(group.places) - len(kept)
    judged = Judged(pool, len(kept), void, how, tuple(found), tuple(less))
    return judged, _as_drawn(group.title, drawn, names, kept, resampling)


def _taking_part(group: Group, passes: Sequence[Pass]) -> list[str]:
    """Who plays in every game of the group, and is not void too often."""

    def plays(name: str) -> bool:
        own = [one.plays[name][place] for one in passes for place in group.places]
        if None in own:
            return False
        return name == CONDUCTOR or sum(map(_is_void, own)) <= TOO_MANY_VOIDS * len(own)

    return [name for name in passes[0].plays if plays(name)]


def _not_void(group: Group, passes: Sequence[Pass], names: Sequence[str]) -> tuple[int, ...]:
    """The games that were void for nobody, at no lambda. Raises `EvaluationError` without any."""
    kept = tuple(
        place
        for place in group.places
        if not any(_is_void(one.plays[name][place]) for one in passes for name in names)
    )
    if not kept:
        raise EvaluationError(
            f"{group.title.lower()}: every game was void for somebody, so nothing can be compared: "
            "see whether the workers answer (`conductor-build probe`) and the verifiers run"
        )
    return kept


def _is_void(play: Play | None) -> bool:
    return play is None or play.outcome.quality is None


def _plays(plays: Sequence[Play | None], kept: Sequence[int]) -> Plays:
    outcomes = [play.outcome for place in kept if (play := plays[place]) is not None]
    return Plays(
        np.array([one.quality for one in outcomes], np.float64),
        np.array([one.cost_usd_per_1k for one in outcomes], np.float64),
    )


def _chosen(
    one: Pass, kept: Sequence[int], games: Sequence[Game]
) -> dict[str, Mapping[str, float]]:
    """Which workers stand behind the baselines that are a choice, and in which share of games."""
    return {
        name: lmtraits.shares(
            games[place].workers[ordinal].id
            for place in kept
            if (play := one.plays[name][place]) is not None
            for ordinal in play.outcome.used
        )
        for name in (BEST_SINGLE, BEST_PER_TASK)
    }


def _as_drawn(
    title: str, one: Pass, names: Sequence[str], kept: Sequence[int], resampling: Resampling
) -> Drawn:
    plays = {name: _plays(one.plays[name], kept) for name in names}
    ours = plays[CONDUCTOR]
    less = {
        name: Plays(ours.score - played.score, ours.cost - played.cost)
        for name, played in plays.items()
        if name != CONDUCTOR
    }
    weights = one.weights[list(kept)]
    return Drawn(title, _scores(plays, weights, resampling), _scores(less, weights, resampling))


def _scores(
    plays: Mapping[str, Plays], weights: Floats, resampling: Resampling
) -> dict[str, Score]:
    """As `scores.score`, with a lambda for each game."""
    columns = [
        column
        for played in plays.values()
        for column in (played.score, played.cost, played.score - weights * played.cost)
    ]
    found = resampling.of(columns)
    return {
        name: Score(len(weights), *found[3 * place : 3 * place + 3])
        for place, name in enumerate(plays)
    }
