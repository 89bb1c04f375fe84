"""Reading the recipe of an LM conductor, strictly: every fault at once, with its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from conductor.plan.language import MAX_WORKERS
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import read
from conductor.strictyaml.values import Section, Unique
from conductor_build.lm import recipe as values
from conductor_build.lm.recipe import (
    Adapter,
    BaseUse,
    Driver,
    LmRecipe,
    Objective,
    PoolKind,
    PoolUse,
    Rollouts,
    SimulatedWorker,
    Stage,
    TaskKind,
    TaskUse,
)
from conductor_build.recipefields import record
from conductor_build.reward import Form, Terms

KIND = "lm"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ADDRESS = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}:[0-9]{1,5}")
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_BELOW = re.compile(r"(?!/)(?!.*\.\.)[^\x00]{1,255}")
_WANT_BELOW = "a path below the data folder"


def load_lm_recipe(path: Path) -> LmRecipe:
    """Read a recipe. Raises `ConfigError` with every fault."""
    faults = Faults()
    root = read(path, faults).root
    root.choice("kind", (KIND,))
    recipe = LmRecipe(
        tasks=_tasks(root),
        pool=_pool(root.mapping("pool")),
        stages=_stages(root),
        seed=root.integer("seed", 0),
        threads=root.integer("threads", 1, low=1, high=256),
        driver=cast(Driver, root.choice("driver", ("cpu", "trl"), "cpu")),
        base=_base(root.mapping("base")),
        lora=_lora(root),
        draw=record(root.mapping("draw", optional=True), values.Draw()),
        rounds=record(root.mapping("rounds", optional=True), values.Rounds()),
        reward=_reward(root.mapping("reward", optional=True)),
        warm_start=record(root.mapping("warm_start", optional=True), values.WarmStart()),
        schedule=record(root.mapping("schedule", optional=True), values.Schedule()),
        held_out=record(root.mapping("held_out", optional=True), values.HeldOut()),
        checkpoints=record(root.mapping("checkpoints", optional=True), values.Checkpoints()),
        rollouts=_rollouts(root.mapping("rollouts", optional=True)),
        max_cost_usd=root.number("max_cost_usd", None, low=0, high=1e9),
    )
    _agree(root, recipe)
    root.done()
    faults.raise_any()
    return recipe


def kind_of(path: Path) -> str:
    """What kind of conductor a recipe is for: its `kind`, `pocket` if it says none. Whatever else
    is in the file is for its own reader to judge."""
    root = read(path, Faults()).root
    return root.choice("kind", (KIND,), "pocket")


def _base(section: Section) -> BaseUse:
    base = BaseUse(source=section.text("source"))
    return record(section, base, leaving=("source",))


def _rollouts(section: Section) -> Rollouts:
    address = section.text("address", "", pattern=_ADDRESS, want="host:port of a Ray cluster")
    return record(section, Rollouts(address=address), leaving=("address",))


def _lora(root: Section) -> Adapter | None:
    return record(root.mapping("lora"), Adapter()) if "lora" in root else None


def _reward(section: Section) -> Terms:
    default = Terms()
    terms = Terms(
        form=cast(Form, section.choice("form", get_args(Form), default.form)),
        price=section.number("price", default.price, high=1000),
        per_round=section.number("per_round", default.per_round, high=1),
        per_1k_tokens=section.number("per_1k_tokens", default.per_1k_tokens, high=1),
        per_second=section.number("per_second", default.per_second, high=1),
        floor=-section.number("worst", -default.floor, high=1000),
    )
    section.done()
    return terms


def _stages(root: Section) -> tuple[Stage, ...]:
    stages, names = [], Unique()
    for item in root.items("stages", some=True):
        one = item.mapping()
        name = one.text("name", pattern=_NAME, want="a plain name")
        names.check(one, "name", name)
        stages.append(Stage(name, record(one, Objective())))
    return tuple(stages)


# -- tasks ----------------------------------------------------------------------------------------


def _tasks(root: Section) -> tuple[TaskUse, ...]:
    tasks, names = [], Unique()
    for item in root.items("tasks", some=True):
        one = item.mapping()
        kind = cast(TaskKind, one.choice("kind", tuple(_OF_KIND)) or "sketches")
        use = TaskUse(
            kind=kind,
            name=one.text("name", kind, pattern=_NAME, want="a plain name"),
            share=one.number("share", 1.0, low=0.001, high=1000),
            **_OF_KIND[kind](one),
        )
        one.done()
        names.check(one, "name", use.name)
        tasks.append(use)
    return tuple(tasks)


def _generated(one: Section, key: str, *, some: bool) -> dict[str, Any]:
    of = one.texts(key, pattern=_WORD, some=True) if some else one.texts(key, (), pattern=_WORD)
    return {"size": one.integer("size", 2000, low=2, high=10_000_000), "of": of}


def _path(one: Section, key: str) -> dict[str, Any]:
    return {"path": one.text(key, pattern=_BELOW, want=_WANT_BELOW)}


_OF_KIND: dict[str, Callable[[Section], dict[str, Any]]] = {
    "sketches": lambda one: _generated(one, "domains", some=False),
    "jsonl": lambda one: _path(one, "file"),
    "gym": lambda one: _generated(one, "generators", some=True),
    "recorded": lambda one: _path(one, "folder"),
}
"""What a task may say beside `name` and `share`."""


# -- the pool -------------------------------------------------------------------------------------


def _pool(section: Section) -> PoolUse:
    kind = cast(PoolKind, section.choice("kind", tuple(_OF_POOL)) or "simulated")
    default = PoolUse(kind)
    pool = replace(
        default,
        temperature=section.number("temperature", default.temperature, high=2),
        max_tokens=section.integer("max_tokens", default.max_tokens, low=1, high=1_000_000),
        **_OF_POOL[kind](section),
    )
    section.done()
    return pool


def _live(section: Section) -> dict[str, Any]:
    return {
        "configs": section.text("configs", pattern=_BELOW, want=_WANT_BELOW),
        "cards": section.text("cards", "", pattern=_BELOW, want=_WANT_BELOW),
        "only": section.texts("only", (), some=True),
        "in_flight": section.integer("in_flight", PoolUse("live").in_flight, low=1, high=1024),
    }


def _recorded(section: Section) -> dict[str, Any]:
    return {
        "folder": section.text("folder", pattern=_BELOW, want=_WANT_BELOW),
        "only": section.texts("only", (), some=True),
    }


def _made_up(section: Section) -> dict[str, Any]:
    most = PoolUse("simulated").card_outcomes
    return {
        "simulated": _simulated(section),
        "card_outcomes": section.integer("card_outcomes", most, low=1, high=1_000_000),
    }


_OF_POOL: dict[str, Callable[[Section], dict[str, Any]]] = {
    "simulated": _made_up,
    "live": _live,
    "recorded": _recorded,
}
"""What a pool may say beside how its workers sample."""


def _simulated(section: Section) -> tuple[SimulatedWorker, ...]:
    workers, names = [], Unique()
    for item in section.items("workers", some=True):
        one = item.mapping()
        worker = SimulatedWorker(
            name=one.text("name", pattern=_NAME, want="a plain name"),
            skill=_skill(one),
            usd_per_mtok=one.number("usd_per_mtok", 0.0, high=10_000),
            tokens=one.integer("tokens", 200, low=1, high=100_000),
            tokens_per_s=one.number("tokens_per_s", 50.0, low=0.1, high=100_000),
        )
        one.done()
        names.check(one, "name", worker.name)
        workers.append(worker)
    if len(workers) > MAX_WORKERS:
        section.fault("bad-value", f"a plan can name {MAX_WORKERS} workers at most", "workers")
    return tuple(workers)


def _skill(worker: Section) -> dict[str, float]:
    section = worker.mapping("skill")
    skill = {key: value.number(high=1) for key, _, value in section.entries()}
    if not skill and section.readable:
        worker.fault("bad-value", "a worker is good at something: name a domain", "skill")
    return skill


# -- what must agree ------------------------------------------------------------------------------


def _agree(root: Section, recipe: LmRecipe) -> None:
    """What no key can be blamed for alone."""
    recorded = [use for use in recipe.tasks if use.kind == "recorded"]
    if recipe.pool.kind == "recorded" and len(recorded) != len(recipe.tasks):
        root.fault("bad-value", "recorded workers answer recorded questions only", "tasks")
    if recipe.pool.kind == "recorded" and any(u.path != recipe.pool.folder for u in recorded):
        root.fault("bad-value", "tasks and pool must be of the same folder of outcomes", "tasks")
    if recipe.pool.kind != "recorded" and recorded:
        root.fault("bad-value", "recorded questions have no answers but the recorded", "tasks")
    most = len(recipe.pool.simulated)
    if most and recipe.draw.pool[0] > most:
        root.fault("bad-value", f"the pool has only {most} workers to draw from", "draw")
