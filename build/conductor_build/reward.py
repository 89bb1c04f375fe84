"""What a played request is worth. One pure function, and the weights it is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RewardWeights:
    """How much else counts beside quality, in points of quality (0 to 1)."""

    per_round: float = 0.0
    """Taken off for every round after the first: a client waits for each."""
    per_1k_tokens: float = 0.0
    """Taken off for every 1,000 output tokens of all workers together."""
    floor: float = -1.0
    """Lowest reward: one absurdly dear plan must not outweigh a whole group."""


def reward(
    *,
    parsed: bool,
    quality: float,
    cost_usd_per_1k: float,
    cost_weight: float,
    rounds: int = 1,
    output_tokens: float = 0.0,
    weights: RewardWeights = RewardWeights(),
) -> float:
    """Reward of one episode.

    0 when the plan could not be parsed or run; else quality - cost_weight * cost, less what rounds
    and tokens cost, at least `weights.floor`. `quality` is that of the answer given, 0 to 1;
    `cost_usd_per_1k` what all answers asked for cost, USD per 1,000 such requests.
    """
    if not parsed:
        return 0.0
    value = quality - cost_weight * cost_usd_per_1k
    value -= weights.per_round * max(0, rounds - 1)
    value -= weights.per_1k_tokens * output_tokens / 1000
    return max(weights.floor, value)
