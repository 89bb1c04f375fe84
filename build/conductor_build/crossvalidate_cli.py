"""`conductor-build crossvalidate`: the honest number of a recipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.errors import ConductorError
from conductor_build.evaluate_cli import (
    exit_code,
    judging_options,
    make_folder,
    names_with_commas,
    show,
    vectors_by,
    write,
)
from conductor_build.train_cli import encoder_id, need_torch, signals

if TYPE_CHECKING:
    from conductor.planner.bundle import Bundle
    from conductor_build.crossvalidate import Held, Train
    from conductor_build.recipe import Recipe
    from conductor_build.sources import Sources
    from conductor_build.vectors import Reader

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("recipe_path", type=_FILE, metavar="RECIPE")
@judging_options
@click.option(
    "--folds", type=click.IntRange(2, 100), help="Parts of the data.  [default: the recipe's]"
)
@click.option(
    "--leave-out-workers", "left_out", callback=names_with_commas, metavar="A,B",
    help="Workers that training never meets, but that are judged in the pool.",
)  # fmt: skip
@click.option(
    "--against", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
    help="The --out of another cross-validation of the same data: differences are printed too.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with what is in --out.")
@click.pass_context
def crossvalidate(
    context: click.Context,
    /,
    recipe_path: Path,
    data: Path,
    out: Path,
    models_dir: Path,
    against: Path | None,
    resume: bool,
    **told: Any,
) -> None:
    """Train RECIPE on each fold's rest, judge it on the fold, and report on all folds together.

    Every table of the recipe gets a report of its own below --out. Takes as many trainings as there
    are folds.

    \b
    Exit codes:
      0    the reports are written
      1    there is too little to train or judge on
      2    the recipe, the data or the encoder cannot be read
      130  stopped by Ctrl-C (143: by SIGTERM); --resume goes on from there
    """
    need_torch()
    from conductor_build.train import Stopped

    try:
        for held, text in _crossvalidate(recipe_path, data, out, models_dir, against, resume, told):
            click.echo(f"# {held.name}\n")
            show(held.evaluation, out / held.name)
            click.echo(text)
    except Stopped as stopped:
        click.echo(str(stopped), err=True)
        sys.exit(128 + stopped.signal)
    except ConductorError as error:
        click.echo(str(error), err=True)
        context.exit(exit_code(error))


def _crossvalidate(
    recipe_path: Path,
    data: Path,
    out: Path,
    models_dir: Path,
    against: Path | None,
    resume: bool,
    told: Mapping[str, Any],
) -> list[tuple[Held, str]]:
    from conductor.planner.encoderfiles import load_encoder
    from conductor_build import crossvalidate as crossing
    from conductor_build.recipe import load_recipe
    from conductor_build.sources import read_sources

    recipe = load_recipe(recipe_path)
    settings = crossing.Settings(
        **{**told, "folds": told["folds"] or recipe.evaluation.folds,
           "left_out": told["left_out"] or ()}
    )  # fmt: skip
    recipe = replace(recipe, seed=settings.seed)
    sources = read_sources(recipe, data)
    reader = load_encoder(models_dir, encoder_id(recipe.encoder), threads=recipe.threads)
    make_folder(out)
    found = crossing.crossvalidate(
        recipe, sources, out, _training(reader, out, resume), vectors_by(reader, out), settings,
        lambda text: click.echo(text, err=True),
    )  # fmt: skip
    return [(held, _keep(held, out, against, settings)) for held in found]


def _training(reader: Reader, out: Path, resume: bool) -> Train:
    """Training as the command `train` does it, with the vectors of all folds kept in one file."""
    from conductor_build.train import train_bundle
    from conductor_build.train_progress import watching
    from conductor_build.vectors import CACHE

    def train(recipe: Recipe, sources: Sources, folder: Path) -> Bundle:
        with signals() as stop, watching() as watch:
            return train_bundle(
                recipe, sources, folder, reader,
                resume=resume, watch=watch, signal=stop, vectors=out / CACHE,
            )  # fmt: skip

    return train


def _keep(held: Held, out: Path, against: Path | None, settings: Any) -> str:
    """Write a table's report and plays; return the differences to another run, for people."""
    from conductor_build.evaluate import kept
    from conductor_build.evaluate.scores import Resampling
    from conductor_build.files import replace_file

    lines = []
    if against is not None:
        others = {one.title: one for one in kept.read(against / held.name / kept.FILE)}
        for own in held.plays:
            if own.title in others:
                less = own.less(others[own.title], Resampling(settings.seed, settings.draws))
                lines += [f"{own.title}, {_said(lam, e)}" for lam, e in less.items()]
    told = {"utility_less_that_of_the_other_run": "; ".join(lines)} if lines else {}
    write(out / held.name, held.evaluation, {**held.provenance, **told})
    replace_file(out / held.name / kept.FILE, kept.encode(list(held.plays)))
    return "\n".join(["utility less that of the other run", *lines]) if lines else ""


def _said(lam: float | None, less: Any) -> str:
    name = "mean over lambdas" if lam is None else f"lambda {lam:g}"
    return f"{name}: {less.mean:+.4f} [{less.low:+.4f}, {less.high:+.4f}]"
