"""From what was played to what is learned: returns, advantages, the loss of a group. Pure.

The objective is the pocket conductor's (`surrogate.py`), over tokens: each token that was chosen
under the mask is a choice with a ratio of its own; tokens that had to come are none. An episode is
void when a worker or a verifier failed it: it teaches nothing, and a group in which fewer than two
are left is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conductor_build.lm.recipe import Objective
from conductor_build.surrogate import clipped_gain, group_advantages

LEAST_GROUP = 2


@dataclass(frozen=True)
class Credited:
    """Advantages of one group's episodes; None for one that teaches nothing."""

    advantages: tuple[float | None, ...]

    @property
    def skipped(self) -> bool:
        return all(one is None for one in self.advantages)


def credit(groups: Sequence[Sequence[float | None]], objective: Objective) -> list[Credited]:
    """Advantages of groups of rewards, None for a void."""
    kept = [[reward for reward in group if reward is not None] for group in groups]
    usable = [torch.tensor(group) for group in kept if len(group) >= LEAST_GROUP]
    if not usable:
        return [Credited((None,) * len(group)) for group in groups]
    found = iter(
        group_advantages(usable, scale=objective.scale, spread_floor=objective.spread_floor)
    )
    return [
        _spread(group, next(found).tolist() if len(rewards) >= LEAST_GROUP else [])
        for group, rewards in zip(groups, kept, strict=True)
    ]


def _spread(group: Sequence[float | None], advantages: list[float]) -> Credited:
    if not advantages:
        return Credited((None,) * len(group))
    given = iter(advantages)
    return Credited(tuple(None if reward is None else next(given) for reward in group))


def discounted(advantage: float, place: int, turns: int, discount: float) -> float:
    """What the plan of round `place` of `turns` is credited with: all of it in the last round, the
    share `discount` in one after which another followed."""
    return advantage if place == turns - 1 else advantage * discount


@dataclass(frozen=True)
class Weighing:
    """What the loss of a batch is divided by, known before its first group."""

    tokens: int
    plans: int
    per: str

    def of(self, chosen: Tensor) -> Tensor:
        """Weights [n, T] of the choices of a group; `chosen` [n, T] says which tokens are choices.
        They sum to 1 over the batch."""
        chosen = chosen.to(torch.float32)
        if self.per == "token":
            return chosen / max(1, self.tokens)
        return chosen / chosen.sum(1, keepdim=True).clamp(min=1) / max(1, self.plans)


def group_loss(
    log_prob: Tensor,
    spread: Tensor,
    sampled: Tensor,
    advantage: Tensor,
    weight: Tensor,
    objective: Objective,
) -> tuple[Tensor, Tensor]:
    """Loss of a group, and its part of the batch's mean entropy (nats a choice), both scalars.

    `log_prob`, `spread` (entropies), `sampled` and `weight` are [n, T], `advantage` is [n].
    """
    gain = (clipped_gain(log_prob, sampled, advantage[:, None], objective.clip) * weight).sum()
    entropy = (spread * weight).sum()
    return -gain - objective.entropy * entropy, entropy
