"""`conductor-build train`: a recipe in, a trained conductor out.

A recipe says by its `kind` which conductor it is for: the pocket conductor, whose training ends in
a signed bundle, or `lm`, a language model, whose training leaves weights, curves and a report.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from conductor.errors import StartError

if TYPE_CHECKING:
    from conductor.planner.manifest import EncoderId
    from conductor_build.train import Stopped

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("recipe_path", type=_FILE, metavar="RECIPE")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Folder that holds the folders and files which the recipe names, or one folder of "
    "outcomes.  [needed unless the recipe names none]",
)
@click.option("--out", type=_FOLDER, metavar="DIR", help="A new folder.  [needed to train]")
@click.option("--resume", is_flag=True, help="Go on with the training in --out, if one is there.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Instead of the recipe's.")
@click.option(
    "--sign-key",
    type=_FILE,
    metavar="KEY",
    help="Private key for the bundle, see bundle keygen.  [default: one made in --out]",
)
@click.option(
    "--models-dir",
    type=_FOLDER,
    envvar="CONDUCTOR_MODELS_DIR",
    default=Path("var/models"),
    show_default=True,
    help="Where files of the model catalogue are.",
)
@click.option(
    "--base",
    metavar="MODEL",
    help="LM only: a folder or a model of the catalogue, instead of the recipe's.",
)
@click.option(
    "--max-cost-usd",
    type=click.FloatRange(0),
    help="LM only: stop cleanly before live workers have cost more, all runs together.",
)
@click.option("--dry-run", is_flag=True, help="LM only: say what it would take, and do nothing.")
def train(
    recipe_path: Path,
    data: Path | None,
    out: Path | None,
    resume: bool,
    seed: int | None,
    sign_key: Path | None,
    models_dir: Path,
    base: str | None,
    max_cost_usd: float | None,
    dry_run: bool,
) -> None:
    """Train a conductor by RECIPE, such as configs/recipes/pocket.yaml or lm-smollm2.yaml.

    Curves, checkpoints and what comes of it go to --out. Ended by Ctrl-C, a kill, a full disk or
    a limit of money, the same command with --resume gives the weights that an unbroken run gives.

    \b
    Exit codes:
      0    trained
      1    not: the message says why
      130  stopped by Ctrl-C (143: by SIGTERM) after writing a checkpoint
    """
    need_torch()
    from conductor_build.lm.recipefile import KIND, kind_of

    if out is None and not dry_run:
        raise click.UsageError("--out is needed to train")
    try:
        if kind_of(recipe_path) == KIND:
            from conductor_build.lm.command import Asked, run

            done = run(
                Asked(
                    recipe=recipe_path, data=data or Path(), out=out, models=models_dir, seed=seed,
                    base=base, max_cost_usd=max_cost_usd, resume=resume, dry_run=dry_run,
                )
            )  # fmt: skip
        else:
            _refuse(base=base, max_cost_usd=max_cost_usd, dry_run=dry_run or None)
            if data is None or out is None:
                raise click.UsageError("--data is needed: folders of recorded outcomes")
            done = _pocket(recipe_path, data, out, resume, seed, sign_key, models_dir)
    except _stopped() as stopped:
        click.echo(str(stopped), err=True)
        sys.exit(128 + stopped.signal)
    click.echo(done)


def _stopped() -> type[Stopped]:
    from conductor_build.train import Stopped

    return Stopped


def _refuse(**given: object) -> None:
    """Options that a pocket conductor's training has not."""
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise click.UsageError(f"--{named[0].replace('_', '-')} is for recipes of the kind lm")


def _pocket(
    recipe_path: Path,
    data: Path,
    out: Path,
    resume: bool,
    seed: int | None,
    sign_key: Path | None,
    models_dir: Path,
) -> str:
    """Train a pocket conductor; returns where its bundle is, and the bundle's id."""
    from conductor.planner.encoderfiles import load_encoder
    from conductor.planner.trust import PURPOSE
    from conductor.process.keyfiles import load_private
    from conductor_build.recipe import load_recipe
    from conductor_build.sources import read_sources
    from conductor_build.train import train_bundle
    from conductor_build.train_progress import watching

    recipe = load_recipe(recipe_path)
    recipe = recipe if seed is None else replace(recipe, seed=seed)
    key = load_private(sign_key, PURPOSE) if sign_key else None
    sources = read_sources(recipe, data)
    reader = load_encoder(models_dir, encoder_id(recipe.encoder), threads=recipe.threads)
    with signals() as stop, watching() as watch:
        bundle = train_bundle(
            recipe, sources, out, reader,
            signing_key=key, resume=resume, watch=watch, signal=stop,
        )  # fmt: skip
    return f"{bundle.path}\n{bundle.id}"


def need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise StartError(
            "training needs torch, which is not installed: run `make train-set`"
        ) from None


def encoder_id(name: str) -> EncoderId:
    """A model of the catalogue, by its id."""
    from conductor.planner.encoderfiles import known_encoders
    from conductor.workers.catalogue import load_catalogue

    known = {model: identity for identity, model in known_encoders(load_catalogue()).items()}
    if name not in known:
        raise StartError(
            f"the recipe's encoder is none of the model catalogue's: {', '.join(sorted(known))}"
        )
    return known[name]


@contextmanager
def signals() -> Iterator[Callable[[], int | None]]:
    """The signal that asks to stop, as soon as one did. A second one ends the process at once: that
    costs no more than what came after the last checkpoint."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: caught[0] if caught else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
