"""Reading the section `planner` of `appliance.yaml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast, get_args

from conductor.settings import (
    MAX_COST_WEIGHT,
    CostWeights,
    Device,
    Dtype,
    LmConfig,
    PlannerConfig,
)
from conductor.strictyaml.values import Section

SHIPPED = "pocket"
"""`planner.bundle` that means the one inside the package (`planner/trust.py`)."""
_ENGINE = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def read_planner(section: Section, root: Path) -> PlannerConfig:
    """Who plans, and by what. Relative paths stand below `root`."""
    bundle = section.text("bundle", SHIPPED)
    keys = section.texts("trusted_keys", (), some=True)
    planner = PlannerConfig(
        engine=section.text("engine", PlannerConfig.engine, pattern=_ENGINE, want="a name"),
        bundle=None if bundle == SHIPPED else root / bundle,
        trusted_keys=tuple(root / key for key in keys),
        timeout_s=section.number("timeout_s", PlannerConfig.timeout_s, low=0.01, high=60.0),
        cost_weight=_cost_weights(section.mapping("cost_weight", optional=True)),
        lm=_lm(section.mapping("lm", optional=True)),
    )
    if planner.bundle and "trusted_keys" not in section:
        message = "a bundle at a path needs trusted_keys: the public key files of who may sign it"
        section.fault("untrusted", message, "bundle")
    if keys and not planner.bundle:
        message = "trusted_keys are for a bundle at a path; the shipped one has its own"
        section.fault("bad-value", message, "trusted_keys")
    section.done()
    return planner


def _cost_weights(section: Section) -> CostWeights:
    weights = CostWeights(
        thrifty=section.number("thrifty", CostWeights.thrifty, high=MAX_COST_WEIGHT),
        balanced=section.number("balanced", CostWeights.balanced, high=MAX_COST_WEIGHT),
        quality=section.number("quality", CostWeights.quality, high=MAX_COST_WEIGHT),
    )
    section.done()
    return weights


def _lm(section: Section) -> LmConfig:
    config = LmConfig(
        runner=section.text("runner", LmConfig.runner, pattern=_ENGINE, want="a name"),
        device=cast(Device, section.choice("device", get_args(Device), LmConfig.device)),
        dtype=cast(Dtype, section.choice("dtype", get_args(Dtype), LmConfig.dtype)),
        threads=section.integer("threads", LmConfig.threads, low=1, high=1024),
        max_running=section.integer("max_running", LmConfig.max_running, low=1, high=1024),
        max_waiting=section.integer("max_waiting", LmConfig.max_waiting, high=100_000),
        cache_tokens=section.integer("cache_tokens", LmConfig.cache_tokens, low=1024),
        max_tokens=section.integer("max_tokens", LmConfig.max_tokens, low=16, high=8192),
        temperature=section.number("temperature", LmConfig.temperature, low=0.01, high=10.0),
        sample=section.flag("sample", LmConfig.sample),
    )
    section.done()
    return config
