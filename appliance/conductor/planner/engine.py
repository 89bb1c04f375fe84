"""The seam to whatever writes plans: rules, the pocket conductor, the language-model conductor.

An engine sees cards, not names, and only workers that policy permits. What it answers is checked
again by `planner/client.py` before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from conductor.core import PlanRequest
from conductor.plan.language import Plan


class Detour(StrEnum):
    """Why `serve` planned by itself instead of the planner process: a closed list, for metrics."""

    DOWN = "down"  # nobody listens on the socket, or the connection broke
    LOADING = "loading"  # it says that its engine is not ready
    BUSY = "busy"  # its queue is full, or too many questions are under way to it
    TIMEOUT = "timeout"  # no plan within the time allowed
    RESTING = "resting"  # it failed a moment ago and is left alone until it has proved itself
    ERROR = "error"  # it answered with a status that is no plan
    JUNK = "junk"  # the answer cannot be read
    UNFIT = "unfit"  # a plan, but one that does not fit this request


@dataclass(frozen=True)
class Insight:
    """Why an engine planned so, for explanations: numbers only, one a candidate where a tuple."""

    right: tuple[float, ...]
    """Estimated chance of a right answer."""
    chosen: tuple[float, ...]
    """Chance of being asked in this round."""
    accept: float
    """Chance that the answer that stands is kept; 0 in a first round."""
    expected_cost_usd: float
    """Of the workers asked in this round."""
    expected_quality: float
    """Estimated chance that the answer of this round, or the one kept, is right."""


@dataclass(frozen=True)
class Planned:
    """A plan and who made it.

    `alternates` are ordinals in the order in which they may stand in for a step's worker that
    fails; the caller skips the one that failed. `where` is the process that planned; `why` is set
    when that was `serve` although a planner process was to be asked.
    """

    plan: Plan
    engine: str
    alternates: tuple[int, ...] = ()
    where: Literal["planner", "serve"] = "serve"
    why: Detour | None = None
    look: bool = False
    """The engine wants to see this round's answers before one is accepted. Then every step runs,
    nothing is streamed, and a further round follows; without it the last step answers."""
    insight: Insight | None = None
    log_prob: float | None = None
    """Natural logarithm of the chance that the engine's policy gives the choices behind this plan;
    None where it has none, as of a rule."""
    bundle: str = ""
    """Id of the bundle that the engine plans with, if it has one."""


class PlanEngine(Protocol):
    """Writes plans. Called from one event loop, many times at once."""

    @property
    def name(self) -> str:
        """Lower case letters, digits, `.`, `_` and `-`, at most 32: goes to headers and metrics."""

    async def plan(self, request: PlanRequest) -> Planned:
        """A plan that fits the request. Raises `PlanError` when no candidate is left."""

    async def ready(self) -> bool:
        """Whether `plan` would answer now; cheap, asked often."""
