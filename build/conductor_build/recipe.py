"""A training recipe: everything that decides what comes out, besides the data. Strictly read.

`configs/recipes/pocket.yaml` says of every field what it means and what it is by default. Unknown
keys, duplicate keys and numbers out of range are faults with file, line and column, all at once.
The fields under `draw` and in a stage are those of `environment.Draw` and `grpo.Objective`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import read
from conductor.strictyaml.values import Section, Unique
from conductor.workers.catalogue import ENCODER_ID
from conductor_build.environment import Draw
from conductor_build.grpo import Objective
from conductor_build.reward import RewardWeights

Method = Literal["imitate", "cascade", "grpo", "reinforce", "tree"]

MAX_ENSEMBLE = 8
"""Most pointers that decide together; each makes a plan a little slower."""

_R = TypeVar("_R")
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WANTED_FOLDER = "the plain name of a folder"

_LEARNING = ("prompts", "group", "learning_rate", "max_gradient")
_CREDIT = ("entropy", "spread_floor", "estimated")
_OF_METHOD: Mapping[str, tuple[str, ...]] = {
    "imitate": (*_LEARNING, "passes"),
    "grpo": (*_LEARNING, *_CREDIT, "passes", "minibatches", "clip", "scale"),
    "reinforce": (*_LEARNING, *_CREDIT),
    "cascade": ("prompts", "learning_rate", "max_gradient", "entropy", "passes"),
    "tree": ("prompts", "learning_rate", "max_gradient", "entropy", "passes", "clip", "prune"),
}
"""The fields of `Objective` that a method looks at; any other in its stage is an unknown key."""

_CHOICES: Mapping[str, tuple[str, ...]] = {"scale": ("batch", "group")}
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "pool": (2, 16),
    "whole": (0, 1),
    "weights": (0.00001, 1000),
    "card_outcomes": (1, 1_000_000),
    "refused": (0, 0.9),
    "max_rounds": (1, 5),
    "max_calls": (1, 16),
    "prompts": (1, 65_536),
    "group": (1, 1024),
    "passes": (1, 64),
    "minibatches": (1, 1024),
    "clip": (0.001, 10),
    "prune": (0.000001, 1),
    "learning_rate": (0.0000001, 1),
    "max_gradient": (0.001, 1000),
    "spread_floor": (0.000001, 10),
    "estimated": (0, 1),
}
"""Lowest and highest value; of a field that is not listed: 0 and 1,000."""


@dataclass(frozen=True)
class TableUse:
    """One folder of outcomes, and how it is drawn from."""

    folder: str
    name: str
    pool: tuple[str, ...] = ()
    pool_share: float = 0.5
    exclude: tuple[str, ...] = ()
    share: float = 1.0


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one objective. `imitate` and `cascade` are warm starts
    (`warmstart.py`, `cascades.py`)."""

    name: str
    method: Method
    iterations: int
    objective: Objective


@dataclass(frozen=True)
class Schedule:
    """Of the learning rate: rising over the first `warmup` iterations, then along a cosine over the
    whole run, down to `end` times itself."""

    warmup: int = 20
    end: float = 0.02


@dataclass(frozen=True)
class Checkpoints:
    """A checkpoint is written after so many iterations, or seconds, whichever comes first."""

    iterations: int = 100
    seconds: float = 30.0


@dataclass(frozen=True)
class JudgedPool:
    """Workers over which a conductor of this recipe is judged."""

    name: str
    workers: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """How a conductor of this recipe is judged when nobody says otherwise."""

    lambdas: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    pools: tuple[JudgedPool, ...] = ()
    folds: int = 5


@dataclass(frozen=True)
class Recipe:
    """A recipe. `threads` are those of the arithmetic: sums depend on how they are split."""

    tables: tuple[TableUse, ...]
    stages: tuple[Stage, ...]
    seed: int = 0
    threads: int = 1
    encoder: str = ENCODER_ID
    hidden: int = 64
    draw: Draw = field(default_factory=Draw)
    schedule: Schedule = Schedule()
    ensemble: int = 1
    checkpoints: Checkpoints = Checkpoints()
    evaluation: Evaluation = Evaluation()

    @property
    def iterations(self) -> int:
        """Of all stages."""
        return sum(stage.iterations for stage in self.stages)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return cast(dict[str, Any], json.loads(json.dumps(asdict(self))))

    def sha256(self) -> str:
        """Names what the recipe says, whatever its comments: checkpoint intervals, which change no
        weight, and how it is judged do not count."""
        counted = replace(self, checkpoints=Checkpoints(), evaluation=Evaluation())
        text = json.dumps(counted.plain(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def load_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises `ConfigError` with every fault."""
    faults = Faults()
    root = read(path, faults).root
    recipe = Recipe(
        seed=root.integer("seed", 0),
        threads=root.integer("threads", 1, low=1, high=256),
        encoder=root.text("encoder", ENCODER_ID),
        tables=_tables(root),
        hidden=_hidden(root.mapping("network", optional=True)),
        draw=_draw(root.mapping("draw", optional=True)),
        schedule=_record(root.mapping("schedule", optional=True), Schedule()),
        stages=_stages(root),
        ensemble=root.integer("ensemble", 1, low=1, high=MAX_ENSEMBLE),
        checkpoints=_checkpoints(root.mapping("checkpoints", optional=True)),
        evaluation=_evaluation(root.mapping("evaluation", optional=True)),
    )
    root.done()
    faults.raise_any()
    return recipe


def _tables(root: Section) -> tuple[TableUse, ...]:
    tables, folders, names = [], Unique(), Unique()
    for item in root.items("tables", some=True):
        one = item.mapping()
        folder = one.text("folder", pattern=_FOLDER, want=_WANTED_FOLDER)
        use = TableUse(
            folder=folder,
            name=one.text("name", folder, pattern=_FOLDER, want=_WANTED_FOLDER),
            pool=_pool(one),
            pool_share=one.number("pool_share", 0.5, high=1),
            exclude=one.texts("exclude", ()),
            share=one.number("share", 1.0, low=0.001, high=1000),
        )
        one.done()
        folders.check(one, "folder", use.folder)
        names.check(one, "name", use.name)
        tables.append(use)
    return tuple(tables)


def _pool(table: Section) -> tuple[str, ...]:
    pool = table.texts("pool", (), some=True)
    if len(set(pool)) != len(pool):
        table.fault("duplicate-id", "a worker stands twice in pool", "pool")
    if len(pool) == 1:
        table.fault("bad-value", "a pool to train on needs two workers", "pool")
    return pool


def _hidden(network: Section) -> int:
    hidden = network.integer("hidden", 64, low=1, high=1024)
    network.done()
    return hidden


def _draw(section: Section) -> Draw:
    return _record(section, Draw())


def _stages(root: Section) -> tuple[Stage, ...]:
    stages, names = [], Unique()
    for item in root.items("stages", some=True):
        one = item.mapping()
        name = one.text("name", pattern=_FOLDER, want="a plain name")
        method = one.choice("method", tuple(_OF_METHOD)) or "grpo"
        iterations = one.integer("iterations", low=1, high=1_000_000)
        learns = method not in ("imitate", "cascade")
        weights = _reward(one.mapping("reward", optional=True)) if learns else RewardWeights()
        played = method in ("grpo", "reinforce")
        base = Objective(method=cast(Any, method if played else "grpo"), weights=weights)
        if method in ("tree", "cascade"):
            base = replace(base, group=1)  # a request is played, or opened, as a whole
        objective = _record(one, base, _OF_METHOD[method])
        if method == "grpo" and objective.group < 2:
            one.fault("bad-value", "a group of one has no mean to be better than", "group")
        names.check(one, "name", name)
        stages.append(Stage(name, cast(Method, method), iterations, objective))
    return tuple(stages)


def _reward(section: Section) -> RewardWeights:
    default = RewardWeights()
    weights = RewardWeights(
        per_round=section.number("per_round", default.per_round, high=1),
        per_1k_tokens=section.number("per_1k_tokens", default.per_1k_tokens, high=1),
        floor=-section.number("worst", -default.floor, high=1000),
    )
    section.done()
    return weights


def _checkpoints(section: Section) -> Checkpoints:
    default = Checkpoints()
    checkpoints = Checkpoints(
        iterations=section.integer("iterations", default.iterations, low=1),
        seconds=section.number("seconds", default.seconds, low=0.1, high=86_400),
    )
    section.done()
    return checkpoints


def _evaluation(section: Section) -> Evaluation:
    default = Evaluation()
    pools, names = [], Unique()
    for item in section.items("pools", []):
        one = item.mapping()
        pool = JudgedPool(one.text("name"), one.texts("workers", some=True))
        one.done()
        names.check(one, "name", pool.name)
        pools.append(pool)
    given = section.items("lambdas", None, some=True)
    evaluation = Evaluation(
        lambdas=default.lambdas if given is None else tuple(one.number() for one in given),
        pools=tuple(pools),
        folds=section.integer("folds", default.folds, low=2, high=100),
    )
    section.done()
    return evaluation


def _record(section: Section, default: _R, only: Collection[str] | None = None) -> _R:
    """A frozen record whose fields are the section's keys; what is not there is as in `default`.
    Kinds are those of the defaults. Nothing else may stand in the section."""
    names = [one.name for one in fields(cast(Any, default)) if only is None or one.name in only]
    values = {name: _value(section, name, getattr(default, name)) for name in names}
    section.done()
    return cast(_R, replace(cast(Any, default), **values))


def _value(section: Section, name: str, default: Any) -> Any:
    low, high = _BOUNDS.get(name, (0, 1000))
    if isinstance(default, str):
        return section.choice(name, _CHOICES[name], default)
    if isinstance(default, tuple):
        return _range(section, name, default)
    if isinstance(default, int):
        return section.integer(name, default, low=int(low), high=int(high))
    return section.number(name, default, low=low, high=high)


def _range(section: Section, name: str, default: tuple[Any, Any]) -> tuple[Any, Any]:
    """Lowest and highest, as a list of two."""
    given = section.items(name, None)
    if given is None:
        return default
    if len(given) != 2:
        section.fault("bad-value", f"{name} must be a list of two: lowest and highest", name)
        return default
    low, high = _BOUNDS[name]
    whole = isinstance(default[0], int)
    ends = [one.integer(int(low), int(high)) if whole else one.number(low, high) for one in given]
    if ends[0] > ends[1]:
        section.fault("bad-value", f"{name} must not begin higher than it ends", name)
    return ends[0], ends[1]
