"""When a policy is measured, on which games, and what the report says in the end.

The reported games are played at three moments: by the untrained policy (the zero-shot conductor, by
the same prompt and mask), after the warm start, and by the weights that are kept. The watched games
are others: nothing that is chosen on them is reported on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from conductor.plan.language import show
from conductor_build.bootstrap import estimates
from conductor_build.live.game import Game
from conductor_build.lm import heldout
from conductor_build.lm.draw import Dealer, Ground, Purpose
from conductor_build.lm.episodes import Episode, Players, Sampling, roll_out
from conductor_build.lm.iteration import generator
from conductor_build.lm.recipe import LmRecipe
from conductor_build.lm.setting import Setting

if TYPE_CHECKING:
    from conductor_build.lm.policy import PlanPolicy

UNTRAINED, WARM, TRAINED = "untrained", "warm start", "trained"
WATCHED = "watched"
REPORT = "report.json"
_AT_ONCE = 16
"""Games that are written for together."""
_SHOWN = 12
"""Plans that the report shows."""
Found = dict[str, Any]
"""What was measured once, as JSON."""


class Judge:
    """Measures the policies of one training."""

    def __init__(
        self,
        recipe: LmRecipe,
        setting: Setting,
        players: Players,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """`between` is called now and then, and may raise."""
        self._recipe, self._setting, self._players = recipe, setting, players
        self._between = between

    def watched(self, policy: PlanPolicy, done: int) -> Found:
        """Greedy play of the watched games."""
        games = self._games(self._setting.watched, Purpose.HELD_OUT)
        one = heldout.standing(self._played(policy, games), self._recipe.reward)
        return {"moment": WATCHED, "iteration": done, **heldout.plain(one)}

    def measured(self, moment: str, policy: PlanPolicy, done: int) -> Found:
        """Greedy play of the reported games, and how many plans parse without the mask."""
        games = self._reported()
        episodes = self._played(policy, games)
        one = heldout.standing(episodes, self._recipe.reward)
        return {
            "moment": moment,
            "iteration": done,
            **heldout.plain(one),
            "parse_rate": self._parse_rate(policy),
            "utilities": list(one.utilities),
            "plans": [_shown(episode) for episode in episodes[:_SHOWN]],
        }

    def report(self, evaluations: Sequence[Found], kept: int, stopped: bool) -> Found:
        """Everything, with what the policy is measured against."""
        recipe, games = self._recipe, self._reported()
        moments = {one["moment"]: one for one in evaluations if one["moment"] != WATCHED}
        return {
            "simulated": self._setting.environment.simulated,
            "base": self._setting.base.name,
            "recipe": recipe.sha256(),
            "seed": recipe.seed,
            "kept_iteration": kept,
            "stopped_early": stopped,
            "spent_usd": self._setting.account.spent_usd,
            "moments": {name: _without(one, "utilities") for name, one in moments.items()},
            "watched": [_without(one, "moment") for one in evaluations if one["moment"] == WATCHED],
            **self._compared(games, {name: one["utilities"] for name, one in moments.items()}),
        }

    # -- games ----------------------------------------------------------------------------------

    def _games(self, ground: Ground, purpose: Purpose) -> tuple[Game, ...]:
        recipe = self._recipe
        dealer = Dealer(ground, recipe.draw, recipe.rounds, recipe.seed)
        return dealer.games(purpose, 0, recipe.held_out.games)

    def _reported(self) -> tuple[Game, ...]:
        return self._games(self._setting.reported, Purpose.REPORTED)

    def _played(self, policy: PlanPolicy, games: Sequence[Game]) -> list[Episode]:
        sampling, writer = Sampling(max_tokens=self._longest), self._setting.writer
        episodes: list[Episode] = []
        for at in range(0, len(games), _AT_ONCE):
            self._between()
            part = games[at : at + _AT_ONCE]
            episodes += roll_out(policy, writer, self._players, part, sampling, None).episodes
        return episodes

    @property
    def _longest(self) -> int:
        return max(stage.objective.max_tokens for stage in self._recipe.stages)

    def _parse_rate(self, policy: PlanPolicy) -> float | None:
        """Share of plans, sampled without the mask, that are plans and fit. Nothing is played."""
        count, writer = self._recipe.held_out.parsing, self._setting.writer
        if not count:
            return None
        games = (self._reported() * -(-count // self._recipe.held_out.games))[:count]
        source, parsed = generator(self._recipe.seed, -1), 0
        for at in range(0, count, _AT_ONCE):
            self._between()
            asks = [writer.ask(game.request) for game in games[at : at + _AT_ONCE]]
            plans = policy.write(
                asks, 1, source, constrained=False, max_tokens=self._longest
            )  # fmt: skip
            parsed += sum(one.plan is not None for group in plans for one in group)
        return parsed / count

    # -- comparing --------------------------------------------------------------------------------

    def _compared(
        self, games: Sequence[Game], utilities: Mapping[str, Sequence[float | None]]
    ) -> Found:
        """Over games with the whole pool, and over the others, where there are any."""
        whole = [game.workers == self._setting.reported.workers for game in games]
        found: Found = {}
        for name, kept in (("whole_pool", whole), ("drawn_pools", [not one for one in whole])):
            if any(kept):
                part = [game for game, keep in zip(games, kept, strict=True) if keep]
                own = {
                    moment: [value for value, keep in zip(values, kept, strict=True) if keep]
                    for moment, values in utilities.items()
                }
                found[name] = self._against(part, own)
        return found

    def _against(self, games: Sequence[Game], own: Mapping[str, Sequence[float | None]]) -> Found:
        terms = self._recipe.reward
        singles = heldout.single_workers(self._players, games, terms)
        domains = [game.task.domain(game.example) for game in games]
        card = heldout.by_card(self._players, games, domains, terms)
        everywhere = {
            name: one for name, one in singles.items() if one.games == len(games) > one.voids
        }
        best = max(everywhere, key=lambda name: everywhere[name].utility, default=None)
        others = {"best by card": card.utilities}
        if best is not None:
            others["best single worker"] = everywhere[best].utilities
        return {
            "games": len(games),
            "utility": {moment: _mean(values) for moment, values in own.items()},
            "best_single": best,
            "singles": {name: heldout.plain(one) for name, one in singles.items()},
            "best_by_card": heldout.plain(card),
            "gains": _gains(own, others, self._recipe.seed),
        }


def _gains(
    own: Mapping[str, Sequence[float | None]],
    others: Mapping[str, Sequence[float | None]],
    seed: int,
) -> Found:
    """Utility of the trained policy less that of each other, with 95 % intervals, over games that
    neither of the two found void."""
    trained = own[TRAINED]
    against = {name: values for name, values in own.items() if name != TRAINED}
    found: Found = {}
    for name, values in {**against, **others}.items():
        pairs = [
            a - b for a, b in zip(trained, values, strict=True) if a is not None and b is not None
        ]
        if pairs:
            (gain,) = estimates(np.array(pairs)[:, None], seed=seed)
            found[name] = {"games": len(pairs), **asdict(gain)}
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None


def _shown(episode: Episode) -> Found:
    """A plan, and what came of it. Instructions that the policy worded are in it."""
    plans = [turn.written.plan for turn in episode.turns]
    quality = None if episode.outcome is None else episode.outcome.quality
    return {"plan": "".join("" if one is None else show(one) for one in plans), "quality": quality}


def _without(found: Found, name: str) -> Found:
    return {key: value for key, value in found.items() if key != name}


def found(evaluations: Sequence[Found], moment: str) -> bool:
    """Whether that moment was measured."""
    return any(one["moment"] == moment for one in evaluations)


def told(found: Found) -> str:
    """What was measured, for people."""
    parse = found.get("parse_rate")
    said = "" if parse is None else f"  parse rate without the mask {parse:.2f}"
    return (
        f"{found['moment']} after {found['iteration']}: reward {found['reward']:.3f}  quality "
        f"{found['quality']:.3f}  utility {found['utility']:.3f}  cost "
        f"{found['cost_usd_per_1k']:.3f}  steps {found['steps']:.2f}  calls {found['calls']:.2f}"
        f"  voids {found['voids']}{said}"
    )


def encoded(report: Found) -> bytes:
    """As a file."""
    return (json.dumps(report, indent=2) + "\n").encode()
