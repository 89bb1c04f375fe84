"""What `conductor-build train` does with a recipe of an LM conductor: estimate it, or carry it out.

The driver `cpu` is our own loop, which also runs on one small GPU; `trl` is for real GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_build.lm import estimate, pools
from conductor_build.lm.recipe import LmRecipe
from conductor_build.lm.recipefile import load_lm_recipe

if TYPE_CHECKING:
    from conductor_build.lm.ranks import Ranks
    from conductor_build.lm.setting import Setting


@dataclass(frozen=True)
class Asked:
    """What stands on the command line."""

    recipe: Path
    data: Path
    out: Path | None
    models: Path
    seed: int | None = None
    base: str | None = None
    max_cost_usd: float | None = None
    resume: bool = False
    dry_run: bool = False


def run(asked: Asked) -> str:
    """Do it; returns what to print. Raises what training raises."""
    recipe = wanted(asked)
    if asked.dry_run:
        return dry_run(recipe, asked.data)
    assert asked.out is not None
    return _train(recipe, asked, asked.out)


def wanted(asked: Asked) -> LmRecipe:
    """The recipe, with what the command line says instead. Raises `ConfigError`."""
    recipe = load_lm_recipe(asked.recipe)
    if asked.seed is not None:
        recipe = replace(recipe, seed=asked.seed)
    if asked.base is not None:
        recipe = replace(recipe, base=replace(recipe.base, source=asked.base))
    return recipe


def dry_run(recipe: LmRecipe, data: Path) -> str:
    """Estimates as a table. Reads who the workers are; calls, loads and writes nothing."""
    shape = estimate.shape_of(recipe.base.source)
    figures = estimate.estimate(recipe, shape, pools.described(recipe, data))
    return estimate.table(figures).rstrip("\n")


def _train(recipe: LmRecipe, asked: Asked, out: Path) -> str:
    from conductor_build.lm.progress import watching
    from conductor_build.lm.ranks import joined
    from conductor_build.lm.setting import opened
    from conductor_build.train_cli import signals

    most = math.inf if asked.max_cost_usd is None else asked.max_cost_usd
    with joined() as ranks:
        most = recipe.may_cost(most) / ranks.size  # each process has an account of its own
        own = out if ranks.leads else out / f".rank-{ranks.rank}"
        with opened(recipe, asked.data, own, asked.models, most) as setting:
            with signals() as stop, watching() as watch:
                told = {"resume": asked.resume, "watch": watch, "signal": stop}
                return str(_driven(recipe, setting, out, ranks, told))


def _driven(
    recipe: LmRecipe, setting: Setting, out: Path, ranks: Ranks, told: dict[str, Any]
) -> Path:
    if recipe.driver == "trl":
        from conductor_build.lm.trl_run import here, train_trl

        return train_trl(recipe, setting, out, here(vllm=_has_vllm()), **told)
    from conductor_build.lm.train import train_lm

    return train_lm(recipe, setting, out, ranks=ranks, **told)


def _has_vllm() -> bool:
    """vLLM writes the plans wherever it is installed beside a GPU."""
    import torch

    return find_spec("vllm") is not None and torch.cuda.is_available()
