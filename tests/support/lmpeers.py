"""A training that two processes share, at module level: where a spawned process finds it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from conductor_build.lm.distributed import Leading, follow
from conductor_build.lm.iteration import Trainer
from conductor_build.lm.ranks import Ranks, joined
from conductor_build.lm.recipe import LmRecipe
from conductor_build.lm.state import Learner
from support import lmparts

RECIPE = lmparts.recipe(
    iterations=2, prompts=2, group=3, passes=2, scale="batch", entropy=0.01, max_tokens=16
)


def trained(ranks: Ranks, recipe: LmRecipe) -> dict[str, object] | None:
    """What the leader has after all iterations: weights and lines."""
    with lmparts.parts() as parts:
        trainer = Trainer(recipe, parts.writer, parts.dealer, parts.players)
        if not ranks.leads:
            follow(ranks, trainer, parts.policy)
            return None
        optimiser = torch.optim.SGD(parts.policy.parameters(), lr=0.1)
        learner, lines, begun = Learner(parts.policy, optimiser), [], parts.policy.state()
        own = Leading(ranks, trainer)
        for stage in recipe.stages:
            for _ in range(stage.objective.iterations):
                lines.append(own.learn(learner, stage))
        own.dismiss()
        lines_told = [vars(one) for one in lines]
        return {"begun": begun, "weights": parts.policy.state(), "lines": lines_told}


def one_of_two(rank: int, port: int, out: Path) -> None:
    """One of two processes; the first then trains once more, alone."""
    os.environ.update(
        RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    with joined() as ranks:
        found = trained(ranks, RECIPE)
        total = ranks.total([1.0, rank])
    alone = trained(Ranks(), RECIPE) if rank == 0 else None
    torch.save({"total": total, "found": found, "alone": alone}, out / f"{rank}.pt")
