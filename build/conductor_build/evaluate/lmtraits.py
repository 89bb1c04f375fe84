"""What an LM conductor is like, beside how well it does: what its plans take and whom they call.

    figures      of every policy at every lambda: steps, calls, rounds, tokens, seconds, voids
    worker use   of the conductors: share of calls by worker, in each domain
    plans        some that were played
    parsing      share of texts, sampled without the mask, that are plans and fit

A plan is shown with the words that the conductor put into it only where the question was made up by
a program: such words may repeat a question, and questions of files and tables stay out of reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from conductor.plan.language import Plan, Step, show
from conductor.plan.templates import is_template
from conductor_build.evaluate import lmgames
from conductor_build.lm.iteration import generator

if TYPE_CHECKING:
    from conductor_build.evaluate.lmgames import Group
    from conductor_build.evaluate.lmjudge import Pass
    from conductor_build.evaluate.lmplays import Play
    from conductor_build.live.game import Game
    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.recipe import LmRecipe
    from conductor_build.lm.setting import Setting

CONDUCTORS = ("conductor", "zero_shot")
SHOWN = 12
"""Plans in a report."""
_AT_ONCE = 16
Json = dict[str, Any]


@dataclass(frozen=True)
class Traits:
    """All of it, fit for JSON."""

    figures: tuple[Json, ...]
    worker_use: tuple[Json, ...]
    plans: tuple[Json, ...]
    parse_rate: Mapping[str, float]
    """By conductor; empty where the recipe samples none."""

    def with_parsing(self, rates: Mapping[str, float]) -> Traits:
        """The same with parse rates."""
        return replace(self, parse_rate=dict(rates))


def traits(
    passes: Sequence[Pass],
    games: Sequence[Game],
    groups: Sequence[Group],
    recipe: LmRecipe,
    setting: Setting,
) -> Traits:
    """Of everybody's plays."""
    figures = [
        {"policy": name, "games": group.title, "lambda": one.lam, **_figures(own)}
        for one in passes
        for group in groups
        for name, plays in one.plays.items()
        if (own := _all(plays, group.places))
    ]
    use = [
        {"policy": name, "lambda": one.lam, "calls": _use(one.plays[name], games)}
        for one in passes
        for name in CONDUCTORS
        if name in one.plays
    ]
    drawn = passes[0].plays[CONDUCTORS[0]]
    plans = [
        _shown(game, play, lmgames.generated(game, recipe, setting.reported))
        for game, play in list(zip(games, drawn, strict=True))[:SHOWN]
        if play is not None
    ]
    return Traits(tuple(figures), tuple(use), tuple(plans), {})


def _all(plays: Sequence[Play | None], places: Sequence[int]) -> list[Play]:
    """The plays of these games; none at all when one is missing."""
    own = [play for place in places if (play := plays[place]) is not None]
    return own if len(own) == len(places) else []


def _figures(plays: Sequence[Play]) -> Json:
    """Means a query. Money is that of the workers: a conductor runs on one's own machine."""
    outcomes = [play.outcome for play in plays]

    def mean(values: Iterable[float]) -> float:
        return round(float(np.mean(list(values))), 6)

    return {
        "steps": mean(play.steps for play in plays),
        "calls": mean(one.calls for one in outcomes),
        "rounds": mean(one.rounds for one in outcomes),
        "conductor_tokens_read": mean(play.read for play in plays),
        "conductor_tokens_written": mean(play.written for play in plays),
        "worker_tokens_read": mean(one.prompt_tokens for one in outcomes),
        "worker_tokens_written": mean(one.output_tokens for one in outcomes),
        "tokens": mean(play.tokens for play in plays),
        "cost_usd": round(float(np.mean([one.cost_usd_per_1k for one in outcomes])) / 1000, 9),
        "seconds": mean(one.seconds for one in outcomes),
        "voids": dict(Counter(one.void for one in outcomes if one.void is not None)),
    }


def _use(plays: Sequence[Play | None], games: Sequence[Game]) -> dict[str, dict[str, float]]:
    """Of each domain, each worker's share of the calls."""
    called: dict[str, list[str]] = {}
    for game, play in zip(games, plays, strict=True):
        names = called.setdefault(lmgames.domain(game), [])
        if play is not None:
            names += [game.workers[ordinal].id for ordinal in play.outcome.used]
    return {domain: shares(names) for domain, names in sorted(called.items())}


def shares(names: Iterable[str]) -> dict[str, float]:
    """How often each is named, the most frequent first; adds up to 1."""
    counted = Counter(names)
    total = counted.total()
    return {name: round(count / total, 4) for name, count in counted.most_common()}


# -- plans ----------------------------------------------------------------------------------------


def _shown(game: Game, play: Play, made_up: bool) -> Json:
    """What was planned in one game, over whom, and what came of it."""
    plans = play.plans if made_up else map(without_words, play.plans)
    return {
        **({"question": game.example.question} if made_up else {}),
        "domain": lmgames.domain(game),
        "lambda": round(game.cost_weight, 6),
        "workers": [worker.id for worker in game.workers],
        "plans": [show(plan) for plan in plans],
        "quality": play.outcome.quality,
        "cost_usd_per_1k": round(play.outcome.cost_usd_per_1k, 6),
    }


def without_words(plan: Plan) -> Plan:
    """The plan with a stand-in for every instruction that the conductor worded itself."""

    def bare(step: Step) -> Step:
        if not step.subtask or is_template(step.subtask):
            return step
        return replace(step, subtask=f"({len(step.subtask.encode())} bytes of its own words)")

    return replace(plan, steps=tuple(map(bare, plan.steps)))


def parse_rates(
    policies: Mapping[str, PlanPolicy], games: Sequence[Game], recipe: LmRecipe
) -> dict[str, float]:
    """Of each policy the share of sampled texts that are plans without the mask's help. As many
    as the recipe says, at temperature 1, for the games in turn; nothing is played."""
    count = recipe.held_out.parsing
    if not count:
        return {}
    wanted = (tuple(games) * -(-count // len(games)))[:count]
    longest = max(stage.objective.max_tokens for stage in recipe.stages)
    return {
        name: _parsed(policy, wanted, longest, recipe.seed) / count
        for name, policy in policies.items()
    }


def _parsed(policy: PlanPolicy, games: Sequence[Game], longest: int, seed: int) -> int:
    source, parsed = generator(seed, -1), 0
    for begin in range(0, len(games), _AT_ONCE):
        asks = [policy.writer.ask(game.request) for game in games[begin : begin + _AT_ONCE]]
        plans = policy.write(asks, 1, source, constrained=False, max_tokens=longest)
        parsed += sum(one.plan is not None for group in plans for one in group)
    return parsed
