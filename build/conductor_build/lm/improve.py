"""The gradient of a batch, group by group, and the steps of the optimiser that it gives.

The policy scores one group at a time, so that memory is that of one group whatever the batch. The
plans of a first round are scored as the group they were written as; those of further rounds each by
itself, since each has a prompt of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from conductor_build.lm.objective import Weighing, credit, discounted, group_loss
from conductor_build.lm.recipe import Objective, Reach

if TYPE_CHECKING:
    from conductor_build.lm.episodes import Rollout
    from conductor_build.lm.policy import PlanPolicy, Written
    from conductor_build.lm.tokens import Ask


@dataclass(frozen=True)
class Lesson:
    """Plans for one prompt, and what each is credited with."""

    ask: Ask
    written: tuple[Written, ...]
    advantages: tuple[float, ...]


@dataclass(frozen=True)
class Learned:
    """What a step came to: means over passes; entropy in nats a choice."""

    loss: float
    entropy: float


def lessons(
    rollout: Rollout,
    rewards: Sequence[Sequence[float | None]],
    objective: Objective,
    discount: float,
) -> list[Lesson]:
    """What a rollout teaches; `rewards` are those of its groups, None for a void."""
    found: list[Lesson] = []
    for group, credited in zip(rollout.groups, credit(rewards, objective), strict=True):
        kept = [
            (episode.turns, advantage)
            for episode, advantage in zip(group, credited.advantages, strict=True)
            if advantage is not None
        ]
        if not kept:
            continue
        first = [(turns[0], discounted(a, 0, len(turns), discount)) for turns, a in kept]
        found.append(
            Lesson(
                first[0][0].ask,
                tuple(turn.written for turn, _ in first),
                tuple(advantage for _, advantage in first),
            )
        )
        for turns, advantage in kept:
            for place, turn in enumerate(turns[1:], 1):
                value = discounted(advantage, place, len(turns), discount)
                found.append(Lesson(turn.ask, (turn.written,), (value,)))
    return found


def improve(
    policy: PlanPolicy,
    optimiser: torch.optim.Optimizer,
    taught: Sequence[Lesson],
    objective: Objective,
) -> Learned:
    """As many steps as the objective has passes. Without a lesson there is none."""
    if not taught:
        return Learned(0.0, 0.0)
    losses, entropies = [], []
    for _ in range(objective.passes):
        optimiser.zero_grad()
        loss, entropy = gradient(policy, taught, objective, weighing(taught, objective.per))
        step(policy, optimiser, objective.max_gradient)
        losses.append(loss)
        entropies.append(entropy)
    return Learned(sum(losses) / len(losses), sum(entropies) / len(entropies))


def weighing(taught: Sequence[Lesson], per: str) -> Weighing:
    """By how much a batch's choices are divided."""
    plans = [one for lesson in taught for one in lesson.written]
    return Weighing(sum(map(choices, plans)), len(plans), per)


def choices(written: Written) -> int:
    """How many tokens of a plan were chosen."""
    return len(written.forced) - sum(written.forced)


def gradient(
    policy: PlanPolicy, taught: Sequence[Lesson], objective: Objective, weighing: Weighing
) -> tuple[float, float]:
    """Add the gradient of a batch to the parameters; returns its loss and entropy. A process that
    has a part of a batch weighs by the whole: then gradients add up."""
    loss, entropy = 0.0, 0.0
    scored = policy.score(
        [lesson.ask for lesson in taught], [lesson.written for lesson in taught],
        temperature=objective.temperature, **reach(objective.through),
    )  # fmt: skip
    for lesson, one in zip(taught, scored, strict=True):
        own, spread = group_loss(
            one.log_prob, one.entropy, sampled(lesson.written, one.log_prob),
            torch.tensor(lesson.advantages, device=one.log_prob.device),
            weighing.of(one.chosen), objective,
        )  # fmt: skip
        own.backward()  # type: ignore[no-untyped-call]
        loss, entropy = loss + float(own.detach()), entropy + float(spread.detach())
    return loss, entropy


def reach(through: Reach) -> dict[str, bool]:
    """How `PlanPolicy.score` says how far back the gradient goes."""
    return {
        "prefix_gradient": through == "prompt",
        "rest_gradient": through in ("prompt", "request"),
    }


def sampled(written: Sequence[Written], like: Tensor) -> Tensor:
    """Log-probabilities of when plans were written, padded to the shape of `like` [n, T]."""
    out = torch.zeros(like.shape, device=like.device)
    for row, one in enumerate(written):
        out[row, : len(one.log_probs)] = torch.tensor(one.log_probs, device=like.device)
    return out


def step(policy: PlanPolicy, optimiser: torch.optim.Optimizer, most: float) -> None:
    """One step down the gradient, which is shortened to the norm `most`."""
    torch.nn.utils.clip_grad_norm_(policy.parameters(), most)
    optimiser.step()
