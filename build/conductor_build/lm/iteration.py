"""One iteration of training: a step of the warm start, or draw, write, play, credit, improve."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.lm.draw import Dealer, Purpose
from conductor_build.lm.episodes import UTILITY, Episode, Players, Rollout, Sampling, roll_out
from conductor_build.lm.improve import Learned, improve, lessons
from conductor_build.lm.progress import LmLine
from conductor_build.lm.recipe import WARM, LmRecipe, Stage
from conductor_build.lm.teacher import Teacher
from conductor_build.lm.warmstart import imitate, spelled

if TYPE_CHECKING:
    import torch

    from conductor_build.lm.policy import Written
    from conductor_build.lm.state import Learner
    from conductor_build.lm.tokens import Ask, Writer

_SAMPLED, _TAUGHT = 1, 2
"""What a random stream is for, beside the seed and the iteration."""


@dataclass(frozen=True)
class Trainer:
    """What iterations share, beside the learner."""

    recipe: LmRecipe
    writer: Writer
    dealer: Dealer
    players: Players

    def warm(self, learner: Learner) -> LmLine:
        """Imitate the teacher's plans for the next few games."""
        begun, settings = time.monotonic(), self.recipe.warm_start
        once = self.recipe.warm_steps // settings.epochs
        first = learner.done % once * settings.prompts
        count = min(settings.prompts, settings.games - first)
        taught = [self._taught(number) for number in range(first, first + count)]
        written = time.monotonic()
        learned = imitate(learner.policy, learner.optimiser, taught, settings)
        learner.done += 1
        return LmLine(
            iteration=learner.done, stage=WARM, loss=learned.loss, entropy=learned.entropy,
            write_s=written - begun, improve_s=time.monotonic() - written,
        )  # fmt: skip

    def _taught(self, number: int) -> tuple[Ask, list[Written]]:
        game = self.dealer.game(Purpose.WARM_START, number)
        rng = np.random.default_rng((self.recipe.seed, _TAUGHT, number))
        teacher = Teacher(game.request, game.task.domain(game.example), rng)
        ask = self.writer.ask(game.request)
        plans = teacher.plans(self.recipe.warm_start.plans)
        return ask, [spelled(self.writer, ask, plan) for plan in plans]

    def learn(self, learner: Learner, stage: Stage) -> LmLine:
        """One batch: play it, and learn from it."""
        objective = stage.objective
        games = self.dealer.games(Purpose.TRAINING, self._first(learner.done), objective.prompts)
        sampling = Sampling(objective.group, objective.temperature, objective.max_tokens)
        rollout = roll_out(
            learner.policy, self.writer, self.players, games, sampling,
            generator(self.recipe.seed, learner.done),
        )  # fmt: skip
        begun, terms = time.monotonic(), self.recipe.reward
        rewards = [[episode.reward(terms) for episode in group] for group in rollout.groups]
        taught = lessons(rollout, rewards, objective, self.recipe.rounds.discount)
        learned = improve(learner.policy, learner.optimiser, taught, objective)
        learner.done += 1
        return _line(learner.done, stage.name, rollout, rewards, learned, time.monotonic() - begun)

    def _first(self, done: int) -> int:
        """The number of the first game of an iteration: all those before it have other games."""
        number, left = 0, done - self.recipe.warm_steps
        for stage in self.recipe.stages:
            took = min(left, stage.objective.iterations)
            number, left = number + took * stage.objective.prompts, left - took
        return number


def generator(seed: int, iteration: int) -> torch.Generator:
    """What plans of an iteration are sampled with."""
    import torch

    state = np.random.SeedSequence((seed, _SAMPLED, iteration + 1)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> 1))


def _line(
    done: int,
    stage: str,
    rollout: Rollout,
    rewards: Sequence[Sequence[float | None]],
    learned: Learned,
    improve_s: float,
) -> LmLine:
    episodes = rollout.episodes
    kept = [episode for episode in episodes if episode.void is None]
    played = [episode.outcome for episode in kept if episode.outcome is not None]
    known = [[reward for reward in group if reward is not None] for group in rewards]
    return LmLine(
        iteration=done,
        stage=stage,
        loss=learned.loss,
        entropy=learned.entropy,
        reward=_mean([reward for group in known for reward in group]),
        accuracy=sum(one.quality or 0.0 for one in played) / len(kept) if kept else None,
        utility=_mean([one for each in kept if (one := each.reward(UTILITY)) is not None]),
        cost_usd_per_1k=_mean([one.cost_usd_per_1k for one in played]),
        parsed=_mean([float(episode.parsed) for episode in episodes]),
        steps=_mean([_steps(episode) for episode in kept]),
        calls=_mean([one.calls for one in played]),
        rounds=_mean([one.rounds for one in played]),
        output_tokens=_mean([one.output_tokens for one in played]),
        plan_tokens=_mean([sum(len(t.written.tokens) for t in one.turns) for one in episodes]),
        plans=len({tuple(turn.written.text for turn in one.turns) for one in episodes}),
        episodes=len(episodes),
        voids=len(episodes) - len(kept),
        skipped=sum(len(group) < 2 for group in known),
        write_s=rollout.write_s,
        play_s=rollout.play_s,
        improve_s=improve_s,
    )


def _steps(episode: Episode) -> float:
    plans = [turn.written.plan for turn in episode.turns]
    return sum(0 if plan is None else len(plan.steps) for plan in plans)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
