"""What asking workers has come to: counts, tokens and money, and the limit of that."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from conductor.core import Failure, Usage, Worker
from conductor.errors import ConductorError
from conductor.run.budget import BYTES_PER_TOKEN_LOW, estimate_tokens
from conductor.run.failover import UNBILLED


class CostReached(ConductorError):
    """The next call might cost more than is left of what may be spent. Everything answered so far
    is kept."""

    def __init__(self, limit_usd: float) -> None:
        self.limit_usd = limit_usd
        super().__init__(
            f"the limit of {limit_usd:g} USD is reached: raise --max-cost-usd, and the same "
            "command goes on from here"
        )

    def __reduce__(self) -> tuple[type[CostReached], tuple[float]]:
        return CostReached, (self.limit_usd,)  # it may come out of another process


@dataclass
class Account:
    """The calls of one run. Money never exceeds `max_cost_usd`: the most that a call under way may
    cost is held until it is known what it did cost, so that a run may stop a little short of it.

    A failed call at which a worker may have worked is charged its prompt, as the daemon does.
    """

    max_cost_usd: float = math.inf
    spent_usd: float = 0.0
    """May begin with what an earlier run of the same training has spent."""
    held_usd: float = 0.0
    asked: int = 0
    """Calls that were answered."""
    retried: int = 0
    kept: int = 0
    """Answers taken from the journal, or from a call that was under way."""
    failures: Counter[str] = field(default_factory=Counter)
    """By worker and failure, `worker:failure`."""
    usage: Usage = field(default_factory=Usage)

    def hold(self, worker: Worker, prompt_bytes: int, max_tokens: int) -> float:
        """Put aside the most that one call may cost. Raises `CostReached`."""
        prompt = math.ceil(prompt_bytes / BYTES_PER_TOKEN_LOW)
        most = worker.price.cost_usd(Usage(prompt, max_tokens))
        if most and self.spent_usd + self.held_usd + most > self.max_cost_usd:
            raise CostReached(self.max_cost_usd)
        self.held_usd += most
        return most

    def answered(self, worker: Worker, held: float, usage: Usage) -> float:
        """Settle a call that was answered; returns what it cost, in USD."""
        cost = worker.price.cost_usd(usage)
        self.asked += 1
        self.usage = self.usage + usage
        self._settle(held, cost)
        return cost

    def failed(self, worker: Worker, held: float, failure: Failure, prompt_bytes: int) -> None:
        """Settle a call that failed."""
        self.failures[f"{worker.id}:{failure}"] += 1
        billed = Usage() if failure in UNBILLED else Usage(estimate_tokens(prompt_bytes))
        self._settle(held, worker.price.cost_usd(billed))

    def left(self, worker: Worker, held: float, prompt_bytes: int) -> None:
        """Settle a call that was given up on our side."""
        self._settle(held, worker.price.cost_usd(Usage(estimate_tokens(prompt_bytes))))

    def _settle(self, held: float, cost_usd: float) -> None:
        self.held_usd -= held
        self.spent_usd += cost_usd
