"""What a played request is worth. Pure: `worth` by given terms, `reward` by the pocket's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["paper", "utility"]
"""`paper`: 0 for what is no plan, 0.5 for a wrong answer, 1 for a right one (arXiv:2512.04388).
`utility`: the quality of the answer, 0 to 1, less what it cost."""


@dataclass(frozen=True)
class RewardWeights:
    """How much else counts beside quality, in points of quality (0 to 1)."""

    per_round: float = 0.0
    """Taken off for every round after the first: a client waits for each."""
    per_1k_tokens: float = 0.0
    """Taken off for every 1,000 output tokens of all workers together."""
    floor: float = -1.0
    """Lowest reward: one absurdly dear plan must not outweigh a whole group."""


@dataclass(frozen=True)
class Terms:
    """The form of a reward, and what is taken off: as in `RewardWeights`, and more."""

    form: Form = "paper"
    price: float = 0.0
    """How much of cost_weight * cost is taken off: with 1, `utility` is the utility of reports."""
    per_round: float = 0.0
    per_1k_tokens: float = 0.0
    per_second: float = 0.0
    """Taken off for every second that the workers took."""
    floor: float = -1.0


@dataclass(frozen=True)
class Spent:
    """What an answer took."""

    cost_usd_per_1k: float
    """USD per 1,000 such requests, of all answers asked for."""
    rounds: int = 1
    output_tokens: float = 0.0
    seconds: float = 0.0


def worth(terms: Terms, *, parsed: bool, quality: float, cost_weight: float, spent: Spent) -> float:
    """What an episode is worth: 0 when the plan could not be parsed or run; else what the form
    makes of the quality of the answer given, 0 to 1, less what it took, at least `terms.floor`."""
    if not parsed:
        return 0.0
    value = quality if terms.form == "utility" else (1 + quality) / 2
    value -= terms.price * cost_weight * spent.cost_usd_per_1k
    value -= terms.per_round * max(0, spent.rounds - 1)
    value -= terms.per_1k_tokens * spent.output_tokens / 1000
    value -= terms.per_second * spent.seconds
    return max(terms.floor, value)


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
    """Reward of one episode, in the form `utility` with its whole price.

    0 when the plan could not be parsed or run; else quality - cost_weight * cost, less what rounds
    and tokens cost, at least `weights.floor`. `quality` is that of the answer given, 0 to 1;
    `cost_usd_per_1k` what all answers asked for cost, USD per 1,000 such requests.
    """
    terms = Terms(
        "utility", 1.0, weights.per_round, weights.per_1k_tokens, floor=weights.floor
    )  # fmt: skip
    spent = Spent(cost_usd_per_1k, rounds, output_tokens)
    return worth(terms, parsed=parsed, quality=quality, cost_weight=cost_weight, spent=spent)
