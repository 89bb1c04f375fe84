"""The `conductor-build` command. One verb so far: look at recorded outcomes."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from conductor import __version__
from conductor.errors import ConductorError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="conductor-build")
def conductor_build() -> None:
    """Builds conductors: looks at what models can do, trains, evaluates, exports.

    So far it has one verb. Training comes with the pocket conductor.
    """


@conductor_build.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def outcomes(folder: Path, as_json: bool) -> None:
    """Summarise recorded outcomes in FOLDER: score and cost of every model, by task."""
    from conductor_build.outcomes import load, summarise

    rows = summarise(load(folder))
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows]))
        return
    tasks = sorted({task for row in rows for task in row.score_by_task})
    table = Table("model", "prompts", "score", *tasks, "USD per 1,000 prompts")
    for row in rows:
        cost = "" if row.cost_usd_per_1k is None else f"{row.cost_usd_per_1k:.3f}"
        by_task = [f"{row.score_by_task[t]:.3f}" if t in row.score_by_task else "" for t in tasks]
        table.add_row(row.model, str(row.prompts), f"{row.score:.3f}", *by_task, cost)
    Console().print(table)


def main() -> None:
    """Entry point: errors of ours end as one message, never as a traceback."""
    try:
        conductor_build.main(standalone_mode=True)
    except ConductorError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
