"""Training a pocket conductor: from a recipe and recorded outcomes to a signed bundle.

    claim       the folder is new, or holds this very training
    vectors     every question as numbers, kept                        vectors.py
    fit         heads, latent model, trust; kept                       pocket/fit.py
    learn       stage by stage, one batch an iteration, checkpoints    cascades.py, warmstart.py,
                                                                       grpo.py, tree.py
    finish      weights, cards, curves, bundle                         trained.py

Whatever is interrupted, by a signal, by a kill, by a full disk, goes on from the last checkpoint to
the very weights that an unbroken run gives: all that an iteration depends on is in the checkpoint,
and arithmetic runs on the recipe's number of threads in a fixed order.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from conductor.errors import ConductorError
from conductor.planner.bundle import Bundle
from conductor.planner.lexical import FEATURES
from conductor_build import cascades, curves, grounds, grpo, tree, warmstart
from conductor_build.cards import Cards, measure
from conductor_build.cascades import Lesson
from conductor_build.checkpoints import (
    Learner,
    claim,
    load_fitted,
    restore,
    save,
    save_fitted,
)
from conductor_build.curves import Curves, Line
from conductor_build.environment import deal
from conductor_build.files import OutputError, replace_file
from conductor_build.grounds import Ground
from conductor_build.outcomes import Table
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.fit import fit
from conductor_build.pocket.network import Pocket
from conductor_build.recipe import Recipe, Stage
from conductor_build.sources import Sources, joined
from conductor_build.trained import Trained, facts_of, finish
from conductor_build.vectors import CACHE, Reader, prompt_vectors

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CRITIC_RATE = 3e-3
"""Learning rate of what expects an answer's quality: a logistic regression on its own."""
PICTURE_EVERY_S = 30.0
Signal = Callable[[], int | None]
"""The number of the signal that asks to stop, if one does."""


class Stopped(ConductorError):
    """A signal ended the training; what it had reached is kept."""

    def __init__(self, signal: int, reached: str) -> None:
        self.signal = signal
        super().__init__(f"stopped {reached}; the same command with --resume goes on from there")


class Watch(Protocol):
    """Who is told how far a training is."""

    def note(self, text: str) -> None:
        """Something else is begun."""

    def encoded(self, done: int, total: int) -> None:
        """Questions encoded, of those that were missing."""

    def iteration(self, line: Line, total: int) -> None:
        """One more of `total` iterations is done."""


def train_bundle(
    recipe: Recipe,
    sources: Sources,
    out: Path,
    reader: Reader,
    *,
    signing_key: Ed25519PrivateKey | None = None,
    resume: bool = False,
    watch: Watch,
    signal: Signal = lambda: None,
    vectors: Path | None = None,
) -> Bundle:
    """Train, and write everything to `out`; the bundle is in `out`/bundle.

    `reader` encodes questions; `vectors` is the file that keeps what it said, in `out` by default.
    Without a signing key one is made in `out`. Raises `Stopped`, `OutputError` for a folder that
    cannot be used, `OutcomesError` for tables that cannot be trained on.
    """
    identity = _identity(recipe, sources, reader)
    with claim(out, identity, resume=resume), _reproducible(recipe.threads):
        features = _vectors(sources, reader, vectors or out / CACHE, watch, signal)
        table = joined(sources.parts)
        cards = measure(table, tuple(sorted(set(table.tasks))))
        facts_of(recipe, cards)  # what the bundle could not say is better known before training
        plots = grounds.plots(sources, table, cards)
        learner, deck = _fitted(recipe, features, table, cards, out, watch)
        restore(out, learner)
        ground = [grounds.ground(deck, plot) for plot in plots]
        _learn(recipe, learner, ground, out, watch, signal)
        watch.note("writing the bundle")
        trained = Trained(recipe, learner.pocket, cards, table, sources, features, reader.id)
        return finish(trained, out, signing_key, _versions())


def _identity(recipe: Recipe, sources: Sources, reader: Reader) -> dict[str, Any]:
    """What the weights depend on."""
    return {
        "recipe": recipe.sha256(),
        "seed": recipe.seed,
        "data": sources.data,
        "encoder": [reader.id.onnx, reader.id.tokenizer],
        "features": list(FEATURES),
        "software": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in ("torch", "numpy", "onnx")}
    return {**found, "python": platform.python_version()}


@contextmanager
def _reproducible(threads: int) -> Iterator[None]:
    """Arithmetic that gives the same bits again, torch's and numpy's."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(threads)
    # As `use_deterministic_algorithms`, which would import torch's compiler for two seconds.
    torch.set_deterministic_debug_mode("error")
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_deterministic_debug_mode(mode)


def _vectors(
    sources: Sources, reader: Reader, cache: Path, watch: Watch, signal: Signal
) -> NDArray[np.float64]:
    def report(done: int, total: int) -> None:
        watch.encoded(done, total)
        if number := signal():
            raise Stopped(number, f"after encoding {done} of {total} questions")

    return prompt_vectors(sources.questions, reader, cache, report).astype(np.float64)


def _fitted(
    recipe: Recipe,
    features: NDArray[np.float64],
    table: Table,
    cards: Cards,
    out: Path,
    watch: Watch,
) -> tuple[Learner, Deck]:
    torch.manual_seed(recipe.seed)
    pocket = Pocket(features.shape[1], len(cards.domains), recipe.hidden, recipe.ensemble)
    deck = load_fitted(out, pocket)
    if deck is None:
        watch.note("fitting the heads and the latent model")
        deck = fit(pocket, features, table, cards, recipe.seed)
        save_fitted(out, pocket, deck)
    learner = Learner(
        pocket,
        torch.optim.Adam(pocket.pointer_parameters()),
        torch.optim.Adam(pocket.appraise.parameters(), lr=CRITIC_RATE),
        np.random.default_rng(recipe.seed),
        torch.Generator().manual_seed(recipe.seed),
    )
    return learner, deck


def _learn(
    recipe: Recipe,
    learner: Learner,
    ground: list[Ground],
    out: Path,
    watch: Watch,
    signal: Signal,
) -> None:
    """Run the iterations that are left, and end with a checkpoint."""
    plan = [stage for stage in recipe.stages for _ in range(stage.iterations)]
    taught = any(stage.method == "cascade" for stage in plan[learner.done :])
    lessons = cascades.lessons(ground) if taught else []
    saved = drawn = time.monotonic()
    with Curves(out, learner.done) as lines:
        for stage in plan[learner.done :]:
            _set_rate(learner, recipe, stage)
            line = _iteration(
                learner, recipe, stage, lessons if stage.method == "cascade" else ground
            )
            lines.add(line)
            watch.iteration(line, len(plan))
            number, now = signal(), time.monotonic()
            due = learner.done % recipe.checkpoints.iterations == 0
            if number or due or now - saved > recipe.checkpoints.seconds:
                _checkpoint(out, learner, lines)
                saved = now
                if now - drawn > PICTURE_EVERY_S:
                    draw(out)
                    drawn = now
            if number:
                raise Stopped(number, f"after iteration {learner.done} of {len(plan)}")
        _checkpoint(out, learner, lines)
    learner.pocket.member = None
    draw(out)


def _set_rate(learner: Learner, recipe: Recipe, stage: Stage) -> None:
    schedule, at = recipe.schedule, learner.done
    rising = min(1.0, (at + 1) / max(1, schedule.warmup))
    falling = (1 + math.cos(math.pi * at / recipe.iterations)) / 2
    rate = stage.objective.learning_rate * rising
    for group in learner.pointer.param_groups:
        group["lr"] = rate * (schedule.end + (1 - schedule.end) * falling)


def _iteration(
    learner: Learner, recipe: Recipe, stage: Stage, among: Sequence[Ground] | Sequence[Lesson]
) -> Line:
    objective, begun = stage.objective, time.monotonic()
    share = np.array([one.share for one in among])
    drawn = among[learner.rng.choice(len(among), p=share / share.sum())]
    ground, step = _played(drawn, stage.method)
    learner.pocket.member = learner.done % recipe.ensemble  # they take turns
    dealt = deal(
        ground.deck, recipe.draw, objective.prompts, objective.group, ground.columns, learner.rng
    )
    progress = step(
        learner.pocket, learner.pointer, learner.critic, ground.deck, dealt, objective,
        learner.generator,
    )  # fmt: skip
    learner.done += 1
    return Line(
        iteration=learner.done,
        stage=stage.name,
        reward=progress.reward,
        accuracy=progress.quality,
        cost_usd_per_1k=progress.cost_usd_per_1k,
        entropy=progress.entropy,
        calls=progress.calls,
        rounds=progress.rounds,
        loss=progress.loss,
        episodes=objective.prompts * objective.group,
        seconds=time.monotonic() - begun,
    )


def _played(drawn: Ground | Lesson, method: str) -> tuple[Ground, Callable[..., grpo.Figures]]:
    """Where the batch is from, and what is done with it."""
    if isinstance(drawn, Lesson):
        return drawn.ground, partial(cascades.copy, drawn)
    return drawn, {"imitate": warmstart.imitate, "tree": tree.step}.get(method, grpo.step)


def _checkpoint(out: Path, learner: Learner, lines: Curves) -> None:
    try:
        lines.sync()
        save(out, learner)
    except (OSError, OutputError) as error:
        raise OutputError(
            f"no checkpoint can be written after iteration {learner.done} ({error}); the one "
            "before is whole: make room, then go on with --resume"
        ) from None


def draw(out: Path) -> None:
    """The picture of the lines so far."""
    replace_file(out / curves.PICTURE, curves.picture(curves.read_lines(out)))
