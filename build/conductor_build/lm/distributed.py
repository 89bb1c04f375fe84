"""Several processes that train one policy: the games of a batch are dealt out, gradients add up.

    torchrun --nproc_per_node 2 -m conductor_build.cli train configs/recipes/lm-tiny.yaml ...

    leader      everything that one process does alone; for a batch it calls on the others
    followers   take its weights, write, play and score their share, give their gradients

What depends on a whole batch, advantages by the batch's spread and the weight of one choice, is
agreed upon before the gradient, so that the sum of the processes' gradients is the one that a
single process would have computed. Plans hang on the seed and the game's number alone: how many
processes there are changes nothing but the order in which numbers are added. Only the leader has an
optimiser and a state to resume. The warm start and what is measured are the leader's too.

Every process has all the weights. For weights that do not fit on one GPU there is FSDP, with the
other driver (`trl_driver.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from conductor.errors import ConductorError
from conductor_build.live.accounts import CostReached
from conductor_build.lm.draw import Purpose
from conductor_build.lm.episodes import Rollout, Sampling, roll_out
from conductor_build.lm.improve import Learned, Lesson, gradient, lessons, step, weighing
from conductor_build.lm.iteration import Trainer, _line
from conductor_build.lm.objective import LEAST_GROUP, Weighing
from conductor_build.lm.progress import LmLine
from conductor_build.lm.ranks import PeersError, Ranks
from conductor_build.lm.recipe import LmRecipe, Objective, Stage

if TYPE_CHECKING:
    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.state import Learner

Rewards = Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class Leading:
    """In the place of an `iteration.Trainer`, for the process that leads."""

    ranks: Ranks
    trainer: Trainer

    def warm(self, learner: Learner) -> LmLine:
        """A step of the warm start, alone."""
        return self.trainer.warm(learner)

    def learn(self, learner: Learner, stage: Stage) -> LmLine:
        """One batch, with the others."""
        self.ranks.told(learner.done)
        line = _iteration(self.ranks, self.trainer, learner.policy, learner.optimiser, learner.done)
        learner.done += 1
        return line

    def dismiss(self) -> None:
        """Let the followers go."""
        self.ranks.told(None)


@contextmanager
def leading(ranks: Ranks, trainer: Trainer) -> Iterator[Trainer | Leading]:
    """What runs the iterations of this process, which leads; at its end the others go home."""
    if ranks.size == 1:
        yield trainer
        return
    own = Leading(ranks, trainer)
    try:
        yield own
    except PeersError:
        raise
    except BaseException:
        with suppress(PeersError):  # who has heard of the same error is gone already
            own.dismiss()
        raise
    else:
        own.dismiss()


def follow(ranks: Ranks, trainer: Trainer, policy: PlanPolicy) -> None:
    """Do what the leader says until it has no more to say."""
    while (done := ranks.told()) is not None:
        _iteration(ranks, trainer, policy, None, int(done))


# -- an iteration ---------------------------------------------------------------------------------


def _iteration(
    ranks: Ranks,
    trainer: Trainer,
    policy: PlanPolicy,
    optimiser: torch.optim.Optimizer | None,
    done: int,
) -> LmLine:
    stage, numbers = batch(trainer.recipe, done)
    ranks.take_weights(policy.parameters())
    rollout = _played(ranks, trainer, policy, ranks.share(numbers), stage.objective)
    begun, terms = time.monotonic(), trainer.recipe.reward
    rewards = [[episode.reward(terms) for episode in group] for group in rollout.groups]
    discount = trainer.recipe.rounds.discount
    taught = taught_by(ranks, rollout, rewards, stage.objective, discount)
    learned = improve(ranks, policy, optimiser, taught, stage.objective)
    own = _line(done + 1, stage.name, rollout, rewards, learned, time.monotonic() - begun)
    return merged(ranks.gathered([own]))


def batch(recipe: LmRecipe, done: int) -> tuple[Stage, range]:
    """The stage of the iteration after `done`, and the numbers of its games: those that one
    process alone would draw."""
    first, left = 0, done - recipe.warm_steps
    for stage in recipe.stages:
        objective = stage.objective
        if left < objective.iterations:
            begin = first + left * objective.prompts
            return stage, range(begin, begin + objective.prompts)
        first, left = first + objective.iterations * objective.prompts, left - objective.iterations
    raise IndexError("the training has no further iteration")


def rolled(
    trainer: Trainer, policy: PlanPolicy, numbers: Sequence[int], objective: Objective
) -> Rollout:
    """Play games, by their numbers, with plans that hang on the seed and the number alone."""
    sampling = Sampling(objective.group, objective.temperature, objective.max_tokens)
    parts = [
        roll_out(
            policy, trainer.writer, trainer.players,
            [trainer.dealer.game(Purpose.TRAINING, number)], sampling,
            torch.Generator().manual_seed(seed_of(trainer.recipe.seed, number)),
        )
        for number in numbers
    ]  # fmt: skip
    return Rollout(
        tuple(group for part in parts for group in part.groups),
        sum(part.write_s for part in parts),
        sum(part.play_s for part in parts),
    )


def seed_of(*numbers: int) -> int:
    """A seed that hangs on all the numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint32)[0])


def taught_by(
    ranks: Ranks, rollout: Rollout, rewards: Rewards, objective: Objective, discount: float
) -> list[Lesson]:
    """What this process's share of a batch teaches; `rewards` are those of its groups."""
    own = lessons(rollout, rewards, objective, discount)
    if objective.scale == "group" or ranks.size == 1:
        return own
    here, everywhere = _spread(rewards), _spread(ranks.gathered(rewards))
    factor = (here + objective.spread_floor) / (everywhere + objective.spread_floor)
    return [
        replace(lesson, advantages=tuple(one * factor for one in lesson.advantages))
        for lesson in own
    ]


def _spread(groups: Rewards) -> float:
    """Of rewards around their groups' means, as `surrogate.group_advantages` takes it."""
    kept = [[one for one in group if one is not None] for group in groups]
    whole = [torch.tensor(group) for group in kept if len(group) >= LEAST_GROUP]
    if not whole:
        return 0.0
    return float(torch.cat([one - one.mean() for one in whole]).square().mean().sqrt())


def improve(
    ranks: Ranks,
    policy: PlanPolicy,
    optimiser: torch.optim.Optimizer | None,
    taught: Sequence[Lesson],
    objective: Objective,
) -> Learned:
    """`improve.improve` for a batch that is dealt out. Its figures are those of the whole batch."""
    own = weighing(taught, objective.per)
    tokens, plans = ranks.total([own.tokens, own.plans])
    if not plans:
        return Learned(0.0, 0.0)
    whole, sums = Weighing(int(tokens), int(plans), objective.per), [0.0, 0.0]
    for again in range(objective.passes):
        if again:
            ranks.take_weights(policy.parameters())
        for parameter in policy.parameters():
            parameter.grad = None
        found = gradient(policy, taught, objective, whole) if taught else (0.0, 0.0)
        ranks.add_gradients(policy.parameters())
        if optimiser is not None:
            step(policy, optimiser, objective.max_gradient)
        sums = [sum(pair) for pair in zip(sums, ranks.total(found), strict=True)]
    return Learned(sums[0] / objective.passes, sums[1] / objective.passes)


# -- what all must know of each -------------------------------------------------------------------

_MONEY = "money"


def _played(
    ranks: Ranks,
    trainer: Trainer,
    policy: PlanPolicy,
    numbers: Sequence[int],
    objective: Objective,
) -> Rollout:
    """This process's share, played. Raises in every process what goes wrong in one of them, so that
    none waits for another."""
    rollout, failed = Rollout((), 0.0, 0.0), None
    try:
        rollout = rolled(trainer, policy, numbers, objective)
    except ConductorError as error:
        failed = error
    said = "" if failed is None else _MONEY if isinstance(failed, CostReached) else str(failed)
    heard = [one for one in ranks.gathered([said]) if one]
    if failed is not None:
        raise failed
    if _MONEY in heard:
        raise CostReached(trainer.recipe.max_cost_usd or 0.0)
    if heard:
        raise PeersError(f"another process of this training says: {heard[0]}")
    return rollout


_SUMMED = frozenset({"plans", "episodes", "voids", "skipped"})
_SAME = frozenset({"iteration", "stage", "loss", "entropy"})
_SLOWEST = frozenset({"write_s", "play_s", "improve_s"})


def merged(lines: Sequence[LmLine]) -> LmLine:
    """The line of a batch from those of its shares: means weigh by episodes that are not void."""
    weights = [line.episodes - line.voids for line in lines]
    found: dict[str, Any] = {}
    for name in (one.name for one in fields(LmLine)):
        values = [getattr(line, name) for line in lines]
        if name in _SAME:
            found[name] = values[0]
        elif name in _SUMMED:
            found[name] = sum(values)
        elif name in _SLOWEST:
            found[name] = max(values)
        else:
            found[name] = _mean(values, weights)
    return LmLine(**found)


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    known = [(one, weight) for one, weight in zip(values, weights, strict=True) if one is not None]
    total = sum(weight for _, weight in known)
    return sum(one * weight for one, weight in known) / total if total else None
