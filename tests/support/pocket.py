"""Untrained pocket conductors and the states they are asked about."""

from __future__ import annotations

import numpy as np
import torch

from conductor.planner.encoder import WIDTH
from conductor.planner.facts import Domain, Facts
from conductor.planner.lexical import FEATURES
from conductor_build.pocket.network import Pocket
from conductor_build.pocket.state import State

FACTS = Facts(
    sentence=WIDTH,
    lexical=FEATURES,
    domains=(
        Domain("gsm", "math", 170.0, 0.8),
        Domain("math-l5", "math", 600.0, 0.4),
        Domain("crux", "code", 120.0, 0.5),
        Domain("other", "general", 300.0, 0.6),
    ),
    cost_weights=(0.003, 2.0),
    max_calls=6,
    max_rounds=5,
)


def perturbed(seed: int, facts: Facts = FACTS, spread: float = 0.3) -> Pocket:
    """A network whose every parameter is off by chance, as if trained on something."""
    draw = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        pocket = Pocket(facts.width, len(facts.domains))
    with torch.no_grad():
        for parameter in pocket.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw) * spread)
        for heads in (pocket.domain, pocket.ease):
            heads.weight.mul_(0.3)
        pocket.centre.copy_(torch.randn(facts.width, generator=draw) * 0.02)
    return pocket


def states(rng: np.random.Generator, batch: int, pool: int, facts: Facts = FACTS) -> State:
    """States as they occur, and some that do not: paddings, missing answers, lines begun."""

    def floats(*shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        return torch.tensor(rng.uniform(low, high, shape), dtype=torch.float32)

    domains = len(facts.domains)
    present = torch.tensor(rng.random((batch, pool)) < 0.85)
    asked = torch.tensor(rng.random((batch, pool)) < 0.4) & present
    pending = torch.tensor(rng.random((batch, pool)) < 0.2) & present & ~asked
    answer = torch.tensor(rng.integers(-1, 4, (batch, pool)))
    sentence = rng.normal(size=(batch, facts.width)) / np.sqrt(facts.width)
    return State(
        prompt=torch.tensor(sentence, dtype=torch.float32),
        skill=floats(batch, pool, domains),
        cost=torch.exp(floats(batch, pool, domains, low=-6, high=3)),
        present=present,
        asked=asked,
        answer=torch.where(asked, answer, -1),
        pending=pending,
        weight=torch.exp(floats(batch, low=-6, high=1)),
        rounds_left=torch.tensor(rng.integers(0, 5, batch)),
        calls_left=torch.tensor(rng.integers(0, 7, batch)),
        steps_left=torch.tensor(rng.integers(0, 6, batch)),
    )
