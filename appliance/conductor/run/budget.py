"""The hard limits of one request: calls, tokens, money and wall time.

Every attempt asks here first and settles afterwards, so that no plan, retry or fallback can spend
more than the site allows. One budget belongs to one request on one event loop: side-by-side steps
share it, and between a check and its reservation nothing awaits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from conductor.core import Price, Usage, Worker
from conductor.errors import BudgetExhausted, UpstreamTimeout
from conductor.settings import RequestLimits

BYTES_PER_TOKEN_LOW = 2
"""Fewest bytes a prompt token stands for, near enough, in text that people write; used to
overestimate what a prompt will cost. Real ratios are 3 to 5 for English."""

BYTES_PER_TOKEN_HIGH = 32
"""More bytes than a token stands for on average in any text: runs of spaces reach about 20."""


def estimate_tokens(text_bytes: int) -> int:
    """Tokens that so many bytes of text usually make. No tokeniser runs on the event loop."""
    return text_bytes // 4 + 1


@dataclass(frozen=True)
class Allowance:
    """Room granted to one attempt, held until `Budget.settle` gives the rest back."""

    output_tokens: int
    """Of one answer; `tokens` counts those of all."""
    tokens: int
    cost_usd: float


@dataclass
class Budget:
    """Counts down the limits of one request; `clock` gives seconds on a monotonic clock."""

    limits: RequestLimits
    clock: Callable[[], float]
    calls: int = 0
    spent: Usage = field(default_factory=Usage)
    cost_usd: float = 0.0
    busy_s: float = 0.0
    """Wall time during which at least one worker was at work, for telling our own share apart."""
    _held_tokens: int = 0
    _held_usd: float = 0.0
    _active: int = 0
    _busy_since_s: float = 0.0
    _start_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._start_s = self.clock()

    def seconds_left(self) -> float:
        """Time left for the whole request; raises `UpstreamTimeout` when there is none."""
        left = self._start_s + self.limits.total_s - self.clock()
        if left <= 0:
            raise UpstreamTimeout(
                f"The request used up its {self.limits.total_s:g} s. Ask for less in one request, "
                "or have the operator raise limits.total_s."
            )
        return left

    def open(
        self, worker: Worker, prompt_bytes: int, wanted: int | None, choices: int = 1
    ) -> Allowance:
        """Reserve one call to `worker`, for `choices` answers to the same prompt.

        `wanted` is the client's own bound on the output tokens of an answer. The allowance caps it
        by what the worker may write and by the tokens and the money that are left. Raises
        `BudgetExhausted` when a limit leaves no room for a single token.
        """
        if self.calls >= self.limits.max_calls:
            raise _exhausted("calls", self.limits.max_calls)
        prompt = estimate_tokens(prompt_bytes)
        dear = math.ceil(prompt_bytes / BYTES_PER_TOKEN_LOW)
        by_tokens = self.limits.max_tokens - self._tokens_used() - prompt
        by_money = self._affordable(worker.price, dear)
        most = worker.limits.max_output_tokens if wanted is None else wanted
        most = min(most, worker.limits.max_output_tokens)
        room = int(min(most, by_tokens / choices, by_money / choices))
        if by_tokens < choices:
            raise _exhausted("tokens", self.limits.max_tokens)
        if room < 1:
            raise _exhausted("money, in USD", self.limits.max_cost_usd)
        self.calls += 1
        if not self._active:
            self._busy_since_s = self.clock()
        self._active += 1
        written = room * choices
        granted = Allowance(room, prompt + written, worker.price.cost_usd(Usage(dear, written)))
        self._held_tokens += granted.tokens
        self._held_usd += granted.cost_usd
        return granted

    def not_called(self) -> None:
        """Take a call back that was reserved and never made. It is settled like any other."""
        self.calls -= 1

    def settle(self, granted: Allowance, price: Price, usage: Usage) -> float:
        """Replace a reservation by what was used; returns its cost in USD."""
        self._held_tokens -= granted.tokens
        self._held_usd -= granted.cost_usd
        self._active -= 1
        if not self._active:
            self.busy_s += self.clock() - self._busy_since_s
        cost = price.cost_usd(usage)
        self.spent = self.spent + usage
        self.cost_usd += cost
        return cost

    def _tokens_used(self) -> int:
        return self.spent.prompt_tokens + self.spent.completion_tokens + self._held_tokens

    def _affordable(self, price: Price, prompt_tokens: int) -> float:
        """Output tokens that the money left pays for, behind such a prompt."""
        left = self.limits.max_cost_usd - self.cost_usd - self._held_usd
        left -= price.cost_usd(Usage(prompt_tokens))
        if price.free:
            return math.inf
        if left < 0:
            return 0
        return left * 1e6 / price.output_usd_per_mtok if price.output_usd_per_mtok else math.inf


def _exhausted(what: str, limit: float) -> BudgetExhausted:
    return BudgetExhausted(
        f"This request reached its limit on {what} ({limit}). Ask for less in one request, or have "
        "the operator raise it under limits: in appliance.yaml."
    )
