"""Tiny trainings: a table, a recipe, and an encoder that needs no model.

Run as a program, `python -m support.training OUT`, it trains into OUT, is killed with SIGKILL again
and again, wherever it then is, resumes each time, and prints how often that was and the digest of
the weights in the end.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from conductor.planner.encoder import WIDTH
from conductor.planner.lexical import FEATURES as LEXICAL
from conductor.planner.manifest import EncoderId
from conductor.run.exchange import Limits
from conductor_build.cards import measure
from conductor_build.curves import LINES, Line
from conductor_build.environment import Draw, Hand, hand
from conductor_build.grpo import Objective
from conductor_build.outcomes import Table
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.latent import EASE
from conductor_build.pocket.network import Pocket
from conductor_build.pocket.state import State
from conductor_build.recipe import Checkpoints, Recipe, Stage, TableUse
from conductor_build.sources import Source, Sources
from conductor_build.train import train_bundle
from support.outcomes import generated

FEATURES = WIDTH + len(LEXICAL)
KILLS, SEED = 5, 0


class FakeReader:
    """Vectors that hang on the text alone."""

    id = EncoderId("a" * 64, "b" * 64)

    def __init__(self) -> None:
        self.embedded = 0

    def embed(self, text: str) -> NDArray[np.float32]:
        self.embedded += 1
        seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
        vector = np.random.default_rng(seed).normal(size=WIDTH)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


class Quiet:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lines: list[Line] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def encoded(self, done: int, total: int) -> None:
        pass

    def iteration(self, line: Line, total: int) -> None:
        self.lines.append(line)


def recipe(iterations: int = 12) -> Recipe:
    """All methods, over a table `t`."""
    small = Objective(prompts=4, group=4)
    return Recipe(
        tables=(TableUse("t", "t"),),
        stages=(
            Stage("warm", "imitate", iterations, small),
            Stage("learn", "grpo", iterations, small),
            Stage("plain", "reinforce", iterations, replace(small, method="reinforce")),
            Stage("copy", "cascade", iterations, replace(small, group=1)),
            Stage("whole", "tree", iterations, replace(small, group=1)),
        ),
        hidden=8,
        draw=Draw(pool=3),
        checkpoints=Checkpoints(iterations=3),
    )


def sources(prompts: int = 40) -> Sources:
    made, _ = generated(prompts)
    return Sources((Source(TableUse("t", "t"), made),), {"t/outcomes.csv.gz": "c" * 64})


def digest(out: Path) -> str:
    """Of the weights that a training in `out` ended with."""
    record = torch.load(out / "pocket.pt", weights_only=True)["state"]
    whole = hashlib.sha256()
    for name in sorted(record):
        whole.update(name.encode() + record[name].numpy().tobytes())
    return whole.hexdigest()


def bare_deck(table: Table, seed: int = 0) -> tuple[Pocket, Deck]:
    """A fresh pointer, and a deck as fitting would give if prompts told nothing but their task."""
    torch.manual_seed(seed)
    cards = measure(table, tuple(sorted(set(table.tasks))))
    pocket = Pocket(FEATURES, len(cards.domains), hidden=16)
    prompts = len(table.prompts)
    domain = torch.zeros(prompts, len(cards.domains))
    for row, task in enumerate(table.tasks):
        domain[row, cards.domains.index(task)] = 1.0
    deck = Deck(
        prompt=torch.zeros(prompts, FEATURES),
        domain=domain,
        ease=torch.zeros(prompts, EASE),
        score=torch.tensor(table.score),
        answer=torch.tensor(table.answer.astype(np.int64)),
        tokens=torch.tensor(np.nan_to_num(table.tokens)),
        skill=torch.tensor(cards.skill),
        cost=torch.tensor(cards.cost),
        price=torch.tensor(cards.price),
        known=torch.tensor(cards.counts > 0),
        comparable=torch.ones(prompts, dtype=torch.bool),
    )
    return pocket, deck


def careless(pocket: Pocket) -> None:
    """Its choices become about as random as the grammar lets them be."""
    with torch.no_grad():
        for pointer in pocket.pointers:
            pointer.sharpness.zero_()


def dealt(deck: Deck, rows: list[int], weight: float = 0.1, limits: Limits = Limits()) -> Hand:  # noqa: B008
    """One episode a row, over all workers in the table's order at the table's prices."""
    count, workers = len(rows), deck.score.shape[1]
    columns = torch.arange(workers).expand(count, -1)
    return hand(
        deck,
        torch.tensor(rows),
        columns,
        torch.ones(count, workers, dtype=torch.bool),
        deck.skill[columns],
        torch.ones(count, workers),
        torch.full((count,), weight),
        [limits] * count,
    )


def random_state(rng: np.random.Generator, batch: int, workers: int, domains: int) -> State:
    """States as they come about, and some that hardly do."""

    def flags(chance: float) -> torch.Tensor:
        return torch.tensor(rng.random((batch, workers)) < chance)

    present = flags(0.8)
    present[:, 0] = True
    asked = flags(0.3) & present
    pending = flags(0.2) & present & ~asked
    answer = torch.tensor(rng.integers(-1, 3, (batch, workers)))
    skill = rng.uniform(0.02, 0.98, (batch, workers, domains))
    cost = np.exp(rng.normal(-2, 2, (batch, workers, domains)))
    return State(
        prompt=torch.tensor(rng.normal(size=(batch, FEATURES)) * 0.05, dtype=torch.float32),
        skill=torch.tensor(skill, dtype=torch.float32),
        cost=torch.tensor(cost, dtype=torch.float32),
        present=present,
        asked=asked,
        answer=torch.where(asked, answer, -1),
        pending=pending,
        weight=torch.tensor(np.exp(rng.uniform(-6, 1, batch)), dtype=torch.float32),
        rounds_left=torch.tensor(rng.integers(0, 5, batch)),
        calls_left=torch.tensor(rng.integers(0, 7, batch)),
        steps_left=torch.tensor(rng.integers(0, 6, batch)),
    )


def main(out: Path) -> None:
    # What is imported on first use is imported here, or every kill would hit an import.
    import matplotlib.figure  # noqa: F401
    import threadpoolctl  # type: ignore[import-untyped]  # noqa: F401

    import conductor_build.pocket.export  # noqa: F401

    torch.optim.Adam([torch.zeros(1)])
    draw, kills, status = random.Random(SEED), 0, 1
    while status:
        child = os.fork()
        if child == 0:
            train_bundle(recipe(), sources(), out, FakeReader(), resume=True, watch=Quiet())
            os._exit(0)
        status = killed(child, out, draw, first=kills == 0) if kills < KILLS else ended(child)
        if os.WIFEXITED(status) and status:
            sys.exit("a training failed by itself")
        kills += os.WIFSIGNALED(status)
    print(kills, digest(out))


def killed(child: int, out: Path, draw: random.Random, *, first: bool) -> int:
    """Kill it a little after some more iterations, the first one while it fits. Returns how it
    ended: it may have come to its end before."""
    wanted = lines(out) + draw.randint(1, 8)
    while not first and lines(out) < wanted:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return ended(child)
        time.sleep(0.002)
    time.sleep(0.2 if first else draw.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    return ended(child)


def ended(child: int) -> int:
    return os.waitpid(child, 0)[1]


def lines(out: Path) -> int:
    """Iterations that the curves have."""
    path = out / LINES
    return path.read_bytes().count(b"\n") if path.exists() else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
