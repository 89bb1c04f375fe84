"""How fast training is: episodes a second of each method, over the recipe's draw.

    PYTHONPATH=build:appliance:tests python tests/bench/bench_train.py [--threads N] [--seconds S]

The table is generated, of the size of a real one; what a batch costs hangs on pools and limits, not
on what the prompts say.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch

from conductor_build import grpo, tree, warmstart
from conductor_build.environment import Draw, deal
from conductor_build.grpo import Objective
from support.outcomes import generated
from support.training import bare_deck

WORKERS = 24
PROMPTS = 2000


def episodes_per_s(method: str, seconds: float) -> tuple[float, float]:
    """Episodes a second, and the share of the time that rolling out took."""
    made, _ = generated(PROMPTS, 8, tasks=("even", "odd", "third"))
    pocket, deck = bare_deck(made)
    deck = replace(
        deck,
        **{
            name: getattr(deck, name).repeat(1, WORKERS // 8)
            for name in ("score", "answer", "tokens")
        },
        **{
            name: getattr(deck, name).repeat(WORKERS // 8, 1) for name in ("skill", "cost", "known")
        },
        price=deck.price.repeat(WORKERS // 8),
    )
    objective = Objective(method="reinforce" if method == "reinforce" else "grpo")
    pointer = torch.optim.Adam(pocket.pointer_parameters(), lr=1e-3)
    critic = torch.optim.Adam(pocket.appraise.parameters(), lr=3e-3)
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    if method == "tree":
        objective = replace(objective, group=1)
    step = {"imitate": warmstart.imitate, "tree": tree.step}.get(method, grpo.step)
    done, playing, start = 0, 0.0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        dealt = deal(deck, Draw(), objective.prompts, objective.group, range(WORKERS), rng)
        step(pocket, pointer, critic, deck, dealt, objective, generator)
        done += objective.prompts * objective.group
    elapsed = time.perf_counter() - start
    for _ in range(5):
        dealt = deal(deck, Draw(), objective.prompts, objective.group, range(WORKERS), rng)
        before = time.perf_counter()
        grpo.roll_out(pocket, deck, dealt, generator)
        playing += time.perf_counter() - before
    each = elapsed / done * objective.prompts * objective.group
    return done / elapsed, playing / 5 / each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for method in ("imitate", "grpo", "reinforce", "tree"):
        speed, share = episodes_per_s(method, arguments.seconds)
        print(f"{method:10} {speed:7.0f} episodes/s, {share:4.0%} of it playing")


if __name__ == "__main__":
    main()
