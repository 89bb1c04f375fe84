"""What a recipe of an LM conductor says: everything that decides what comes out, besides the data.

`configs/recipes/lm-smollm2.yaml` says of every key what it means. How such a file is read stands in
`recipefile.py`; a field's default and bounds stand here.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast, get_args

from conductor_build.recipefields import choices, number
from conductor_build.reward import Terms
from conductor_build.surrogate import Scale

Driver = Literal["cpu", "trl"]
TaskKind = Literal["sketches", "jsonl", "gym", "recorded"]
PoolKind = Literal["simulated", "live", "recorded"]
Reach = Literal["prompt", "request", "plan"]
"""How far back a gradient goes: through the whole prompt, only through what the request says, or
only through the plan's own tokens. The last two are no longer exact, and cost less."""
WARM = "warm start"
"""Name of the stage that no recipe lists: the supervised start."""


@dataclass(frozen=True)
class Adapter:
    """Low-rank weights beside frozen ones (Hu et al. 2021, arXiv:2106.09685)."""

    rank: int = number(16, 1, 1024)
    alpha: float = number(32.0, 0.01, 4096)


@dataclass(frozen=True)
class BaseUse:
    """The model that is trained, and how many examples its prompts show."""

    source: str = "tiny"
    dtype: str = field(default="float32", metadata=choices("float32", "bfloat16"))
    examples: int = number(4, 0, 4)


@dataclass(frozen=True)
class TaskUse:
    """One source of questions. `share` is how often a question is drawn from it."""

    kind: TaskKind
    name: str
    share: float = 1.0
    size: int = 2000
    """Questions drawn, for generators."""
    of: tuple[str, ...] = ()
    """Domains of sketches, generators of gym; none: all of them."""
    path: str = ""
    """File of questions or folder of outcomes, below the data folder."""


@dataclass(frozen=True)
class SimulatedWorker:
    """A worker that is none: `skill` by domain is its chance of a right answer."""

    name: str
    skill: Mapping[str, float]
    usd_per_mtok: float = 0.0
    tokens: int = 200
    tokens_per_s: float = 50.0


@dataclass(frozen=True)
class PoolUse:
    """Who answers: workers of a site, workers of a table of outcomes, or simulated ones."""

    kind: PoolKind
    simulated: tuple[SimulatedWorker, ...] = ()
    card_outcomes: int = 200
    """Questions of each domain that simulated workers' cards look as if measured on."""
    configs: str = ""
    """The site's folder, with `workers.yaml`, below the data folder."""
    cards: str = ""
    """`cards.json` of a probe, below the data folder; empty: the cards of `workers.yaml`."""
    folder: str = ""
    """Folder of outcomes, below the data folder."""
    only: tuple[str, ...] = ()
    """Workers of the site or the table; none: all of them."""
    temperature: float = 0.2
    """At which workers sample."""
    max_tokens: int = 4096
    """Of each answer."""
    in_flight: int = 8
    """Calls of one live worker at a time, within its own limit."""


@dataclass(frozen=True)
class Draw:
    """How games are drawn."""

    fixed: float = number(0.0, 0, 1)
    """Share of games that have the whole pool, in its own order, at its own prices."""
    pool: tuple[int, int] = number((2, 7), 1, 64)
    """Workers of the others, drawn at random, in random order."""
    price_spread: float = number(0.3, 0, 3)
    """Standard deviation of the log of the factor on each worker's price."""
    refused: float = number(0.1, 0, 0.9)
    """Share of a drawn pool that policy does not permit."""
    veiled: float = number(0.0, 0, 1)
    """Share of the others in which some workers may see only what `redact` leaves."""
    weights: tuple[float, float] = number((0.003, 2.0), 0.00001, 1000)
    """Range of lambda, drawn evenly on a log scale."""
    max_steps: tuple[int, int] = number((5, 5), 1, 5)
    max_calls: tuple[int, int] = number((5, 5), 1, 16)


@dataclass(frozen=True)
class Rounds:
    """Further rounds, which the policy is made to write for a share of the games."""

    share: float = number(0.0, 0, 1)
    most: int = number(2, 2, 5)
    discount: float = number(0.25, 0, 1)
    """What of its advantage a plan is credited with after which another round followed."""


@dataclass(frozen=True)
class WarmStart:
    """Supervised learning of generated plans, before any reward."""

    games: int = number(0, 0, 1_000_000)
    """Games that plans are written for; 0: no warm start."""
    plans: int = number(4, 1, 64)
    """Plans a game."""
    epochs: int = number(1, 1, 100)
    prompts: int = number(8, 1, 1024)
    """Games a step."""
    learning_rate: float = number(1e-4, 0, 1)
    max_gradient: float = number(1.0, 0.001, 1000)
    through: Reach = field(default="prompt", metadata=choices(*get_args(Reach)))


@dataclass(frozen=True)
class Objective:
    """What a stage optimises, and how."""

    iterations: int = number(100, 1, 1_000_000)
    prompts: int = number(4, 1, 4096)
    """Games an iteration."""
    group: int = number(64, 2, 1024)
    """Plans a game."""
    passes: int = number(1, 1, 64)
    """Steps of the optimiser on what an iteration played."""
    learning_rate: float = number(1e-6, 0, 1)
    clip: float = number(0.2, 0.001, 10)
    entropy: float = number(0.0, 0, 10)
    temperature: float = number(1.0, 0.05, 10)
    max_tokens: int = number(1024, 8, 4096)
    """Longest plan."""
    scale: Scale = field(default="group", metadata=choices("group", "batch"))
    """Whose standard deviation advantages are divided by."""
    spread_floor: float = number(0.0001, 0.000001, 10)
    max_gradient: float = number(1.0, 0.001, 1000)
    per: str = field(default="token", metadata=choices("token", "plan"))
    """What weighs alike in the loss: every chosen token of a batch, or every plan."""
    through: Reach = field(default="prompt", metadata=choices(*get_args(Reach)))


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one objective."""

    name: str
    objective: Objective


@dataclass(frozen=True)
class Schedule:
    """Of the learning rate, in the warm start and over all stages apart: rising over the first
    `warmup` share, then along a cosine down to `end` times itself."""

    warmup: float = number(0.03, 0, 1)
    end: float = number(0.0, 0, 1)


@dataclass(frozen=True)
class HeldOut:
    """Greedy play on held-out questions."""

    share: float = number(0.1, 0.001, 0.9)
    """Of the questions, told by their words and the seed."""
    games: int = number(64, 1, 100_000)
    """To watch; as many others are reported on."""
    parsing: int = number(32, 0, 100_000)
    """Plans that are sampled without the mask, before and after, to see how many parse."""
    every: int = number(0, 0, 1_000_000)
    """Iterations between two evaluations of the watched games; 0: never."""
    fall: float = number(0.05, 0.0001, 10)
    """By how much reward may stay below its best..."""
    patience: int = number(2, 1, 1000)
    """...in so many evaluations in a row, before training stops at its best."""


@dataclass(frozen=True)
class Rollouts:
    """Where plans are played: in the trainer's own process, or by so many Ray actors."""

    actors: int = number(0, 0, 4096)
    in_flight: int = number(16, 1, 4096)
    """Plays that one actor has at a time."""
    address: str = ""
    """`host:port` of a Ray cluster that runs; empty: one of this machine, as long as it lasts."""


@dataclass(frozen=True)
class Checkpoints:
    """A checkpoint is written after so many iterations, or seconds, whichever comes first."""

    iterations: int = number(10, 1, 1_000_000)
    seconds: float = number(120.0, 0.1, 86_400)


@dataclass(frozen=True)
class LmRecipe:
    """A recipe. `threads` are those of the arithmetic: sums depend on how they are split."""

    tasks: tuple[TaskUse, ...]
    pool: PoolUse
    stages: tuple[Stage, ...] = ()
    seed: int = 0
    threads: int = 1
    driver: Driver = "cpu"
    base: BaseUse = BaseUse()
    lora: Adapter | None = None
    draw: Draw = Draw()
    rounds: Rounds = Rounds()
    reward: Terms = field(default_factory=Terms)
    warm_start: WarmStart = WarmStart()
    schedule: Schedule = Schedule()
    held_out: HeldOut = HeldOut()
    checkpoints: Checkpoints = Checkpoints()
    rollouts: Rollouts = Rollouts()
    max_cost_usd: float | None = None

    def may_cost(self, most_usd: float = math.inf) -> float:
        """What a training may spend in USD: no more than the recipe says, nor than `most_usd`."""
        return most_usd if self.max_cost_usd is None else min(most_usd, self.max_cost_usd)

    @property
    def warm_steps(self) -> int:
        """Steps of the warm start."""
        once = -(-self.warm_start.games // self.warm_start.prompts)
        return once * self.warm_start.epochs

    @property
    def iterations(self) -> int:
        """Steps of the warm start and iterations of all stages."""
        return self.warm_steps + sum(stage.objective.iterations for stage in self.stages)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return cast(dict[str, Any], json.loads(json.dumps(asdict(self))))

    def sha256(self) -> str:
        """Names what the recipe says, whatever its comments: when checkpoints are written, who
        plays and when money runs out change no weight, and do not count."""
        counted = replace(self, checkpoints=Checkpoints(), max_cost_usd=None).plain()
        del counted["rollouts"]  # and is left out altogether
        text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
