"""`conductor-build train`: a recipe and recorded outcomes in, a signed bundle out."""

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

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("recipe_path", type=_FILE, metavar="RECIPE")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    required=True,
    metavar="DIR",
    help="Folder that holds the folders of outcomes which the recipe names, or one of them.",
)
@click.option("--out", type=_FOLDER, required=True, metavar="DIR", help="A new folder.")
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
    help="Where the sentence encoder's files are.",
)
def train(
    recipe_path: Path,
    data: Path,
    out: Path,
    resume: bool,
    seed: int | None,
    sign_key: Path | None,
    models_dir: Path,
) -> None:
    """Train a pocket conductor by RECIPE, such as configs/recipes/pocket.yaml.

    Curves, checkpoints and the bundle go to --out. Ended by Ctrl-C, a kill or a full disk, the same
    command with --resume gives the very weights that an unbroken run gives.

    \b
    Exit codes:
      0    trained
      1    not: the message says why
      130  stopped by Ctrl-C (143: by SIGTERM) after writing a checkpoint
    """
    need_torch()
    from conductor.planner.encoderfiles import load_encoder
    from conductor.planner.trust import PURPOSE
    from conductor.process.keyfiles import load_private
    from conductor_build.recipe import load_recipe
    from conductor_build.sources import read_sources
    from conductor_build.train import Stopped, train_bundle
    from conductor_build.train_progress import watching

    recipe = load_recipe(recipe_path)
    recipe = recipe if seed is None else replace(recipe, seed=seed)
    key = load_private(sign_key, PURPOSE) if sign_key else None
    sources = read_sources(recipe, data)
    reader = load_encoder(models_dir, encoder_id(recipe.encoder), threads=recipe.threads)
    try:
        with signals() as stop, watching() as watch:
            bundle = train_bundle(
                recipe, sources, out, reader,
                signing_key=key, resume=resume, watch=watch, signal=stop,
            )  # fmt: skip
    except Stopped as stopped:
        click.echo(str(stopped), err=True)
        sys.exit(128 + stopped.signal)
    click.echo(f"{bundle.path}\n{bundle.id}")


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
