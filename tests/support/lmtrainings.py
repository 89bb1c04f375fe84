"""Trainings of a small random model on games whose outcome hangs on the plan alone.

Run as a program, `python -m support.lmtrainings OUT`, it trains into OUT until it kills itself with
SIGKILL, right after an iteration that no checkpoint knows of.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from conductor_build.live.accounts import Account
from conductor_build.live.environment import Environment
from conductor_build.lm.draw import Draw, Ground
from conductor_build.lm.policy import Lora, PlanPolicy
from conductor_build.lm.progress import LmLine
from conductor_build.lm.recipe import (
    Checkpoints,
    HeldOut,
    LmRecipe,
    Objective,
    PoolUse,
    Schedule,
    Stage,
    TaskUse,
    WarmStart,
)
from conductor_build.lm.setting import Setting
from conductor_build.lm.train import train_lm
from conductor_build.reward import Terms
from support.lmgames import Named, Stand, workers
from support.lmmodels import base, policy, writer

STAGE = Objective(
    iterations=4, prompts=2, group=4, learning_rate=0.01, max_tokens=16, entropy=0.001,
    scale="batch", spread_floor=0.01,
)  # fmt: skip
RECIPE = LmRecipe(
    tasks=(TaskUse("sketches", "named"),),
    pool=PoolUse("simulated"),
    stages=(Stage("learn", STAGE),),
    draw=Draw(fixed=0.5, pool=(2, 3), max_steps=(2, 2)),
    reward=Terms("utility", price=1.0),
    warm_start=WarmStart(games=4, plans=2, prompts=2, learning_rate=0.01),
    schedule=Schedule(warmup=0.1, end=0.5),
    held_out=HeldOut(games=4, parsing=2, every=2),
    checkpoints=Checkpoints(iterations=2, seconds=3600),
)
KILLED_AT = 5
"""Of six iterations; the last checkpoint is after the fourth."""


class Quiet:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lines: list[LmLine] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def iteration(self, line: LmLine, total: int) -> None:
        self.lines.append(line)


class Deadly(Quiet):
    """Ends the process where no handler can help."""

    def iteration(self, line: LmLine, total: int) -> None:
        if line.iteration == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)


def setting(environment: Environment | None = None) -> Setting:
    """Named questions, three workers."""

    def ground(count: int) -> Ground:
        return Ground(((Named(count), 1.0),), workers())

    return Setting(
        base=base(), writer=writer(), training=ground(30), watched=ground(6), reported=ground(6),
        environment=environment or Stand(), data={}, account=Account(),
    )  # fmt: skip


def trained(out: Path, recipe: LmRecipe = RECIPE, **more: Any) -> Path:
    """Train; returns the report's path."""
    environment = more.pop("environment", None)
    return train_lm(recipe, setting(environment), out, **{"watch": Quiet(), **more})


def shortened(recipe: LmRecipe = RECIPE, **objective: Any) -> LmRecipe:
    """The recipe without a warm start and with another stage; nothing is watched."""
    stage = Stage("learn", replace(STAGE, **objective))
    return replace(
        recipe, stages=(stage,), warm_start=WarmStart(), held_out=HeldOut(games=2, parsing=0)
    )


def small_policy() -> PlanPolicy:
    return policy(lora=Lora(rank=4, alpha=8.0))


if __name__ == "__main__":
    trained(Path(sys.argv[1]), watch=Deadly())
