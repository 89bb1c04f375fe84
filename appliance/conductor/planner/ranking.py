"""What cards say of a question: how able a worker is, and what its answer costs.

For engines without a network of their own. Left out: which kind of question it is (`domain.py`).
"""

from __future__ import annotations

from conductor.core import Candidate, Card

EXPECTED_ANSWER_TOKENS = 400
"""Length of an answer, for comparing prices and for room in the context window."""


def skill(card: Card, topic: str) -> float:
    """The card's figure for the domain, else for `general`, else the lowest on it, else 0."""
    for name in (topic, "general"):
        if name in card.skill:
            return card.skill[name]
    return min(card.skill.values(), default=0.0)


def price_usd(candidate: Candidate, prompt_tokens: int) -> float:
    """What one answer is expected to cost, in USD."""
    return (
        prompt_tokens * candidate.price.input_usd_per_mtok
        + EXPECTED_ANSWER_TOKENS * candidate.price.output_usd_per_mtok
    ) / 1e6


def roomy(candidate: Candidate, prompt_tokens: int) -> bool:
    """Whether its window holds the conversation and an answer."""
    return candidate.context_tokens >= prompt_tokens + EXPECTED_ANSWER_TOKENS
