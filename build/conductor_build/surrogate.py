"""The parts of GRPO that both conductors learn by: pure functions of tensors.

GRPO (Shao et al. 2024, arXiv:2402.03300): an episode's advantage is its reward less the mean of its
group, over a standard deviation; the gain is the ratio to the sampling policy times the advantage,
clipped as in PPO (Schulman et al. 2017, arXiv:1707.06347). No critic, no KL term.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Scale = Literal["group", "batch"]

_LEAST = -50.0
"""Of a log-probability in an entropy: what is all but impossible would make 0 times infinity."""


def group_advantages(
    groups: Sequence[Tensor], *, scale: Scale, spread_floor: float
) -> list[Tensor]:
    """Advantages of groups of rewards, each [N] with an N of its own.

    `scale` says whose standard deviation they are divided by: each group's own, or that of all
    rewards around their groups' means. `spread_floor` is added to it.
    """
    centred = [rewards - rewards.mean() for rewards in groups]
    if scale == "group":
        spreads = [rewards.std(correction=0) for rewards in groups]
    else:
        spreads = [torch.cat(centred).square().mean().sqrt()] * len(centred)
    return [one / (spread + spread_floor) for one, spread in zip(centred, spreads, strict=True)]


def clipped_gain(log_prob: Tensor, sampled: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped surrogate of every choice, to be raised; shapes are broadcast.

    `sampled` are the log-probabilities under the policy that sampled the choices.
    """
    ratio = torch.exp(log_prob - sampled)
    held = ratio.clamp(1 - clip, 1 + clip)
    return torch.minimum(ratio * advantage, held * advantage)


def entropy(log: Tensor) -> Tensor:
    """Entropy in nats of distributions given as log-probabilities, over the last dimension."""
    return -(log.exp() * log.clamp(min=_LEAST)).sum(-1)
