"""What an episode is worth, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_build.reward import RewardWeights, reward

RIGHT: dict[str, Any] = {
    "parsed": True, "quality": 1.0, "cost_usd_per_1k": 2.0, "cost_weight": 0.1,
}  # fmt: skip
SLOW = RewardWeights(per_round=0.05)
WORDY = RewardWeights(per_1k_tokens=0.02)


@pytest.mark.parametrize(
    ("changes", "worth"),
    [
        ({}, 0.8),
        ({"quality": 0.0}, -0.2),
        ({"quality": 0.5}, 0.3),
        ({"cost_weight": 0.0}, 1.0),
        ({"cost_usd_per_1k": 0.0}, 1.0),
        ({"parsed": False}, 0.0),
        ({"parsed": False, "weights": SLOW, "rounds": 4}, 0.0),
        ({"rounds": 3}, 0.8),
        ({"rounds": 1, "weights": SLOW}, 0.8),
        ({"rounds": 3, "weights": SLOW}, 0.7),
        ({"rounds": 0, "weights": SLOW}, 0.8),
        ({"output_tokens": 500.0}, 0.8),
        ({"output_tokens": 500.0, "weights": WORDY}, 0.79),
        ({"cost_usd_per_1k": 1000.0}, -1.0),
        ({"cost_usd_per_1k": 1000.0, "weights": RewardWeights(floor=-0.25)}, -0.25),
    ],
)
def test_reward_of_an_episode(changes: dict[str, Any], worth: float) -> None:
    assert reward(**{**RIGHT, **changes}) == pytest.approx(worth)
