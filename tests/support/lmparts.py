"""A training of the tiny language model in miniature.

Real are the model, its tokenizer, the mask, draws and the objective; games and plays are those of
`lmgames.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from conductor_build.lm.base import load_base
from conductor_build.lm.draw import Dealer, Draw, Ground
from conductor_build.lm.episodes import Players
from conductor_build.lm.policy import Lora, PlanPolicy
from conductor_build.lm.recipe import LmRecipe, Objective, PoolUse, Rounds, Stage
from conductor_build.lm.tokens import Writer
from conductor_build.lm.trl_driver import Parts
from support.lmgames import Named, Stand, workers

MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", "var/models"))


def dealer(rounds: Rounds | None = None) -> Dealer:
    """Deals games over the whole pool."""
    ground = Ground(((Named(), 1.0),), workers())
    return Dealer(ground, Draw(fixed=1.0), rounds or Rounds(), seed=3)


def recipe(**objective: object) -> LmRecipe:
    """One stage over two games an iteration, four plans each."""
    asked = {"iterations": 2, "prompts": 2, "group": 4, "learning_rate": 1e-3, "max_tokens": 48}
    stage = Stage("plans", Objective(**{**asked, **objective}))  # type: ignore[arg-type]
    return LmRecipe(tasks=(), pool=PoolUse("simulated"), stages=(stage,), seed=3)


@contextmanager
def parts(lora: Lora | None = None) -> Iterator[Parts]:
    """All parts of a training of the tiny model, on one thread."""
    torch.set_num_threads(1)
    base = load_base("tiny", models=MODELS, dtype=torch.float32)
    writer = Writer.of(base, examples=0)
    with Players(Stand()) as players:
        yield Parts(base, PlanPolicy(base, writer, lora=lora), writer, players, dealer())
