"""`conductor-build outcomes`: look at a folder of recorded outcomes, or make one."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from conductor_build.importers.rows import Faults, Row

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.group()
def outcomes() -> None:
    """Recorded outcomes: what models answered, whether it was right, and what it cost."""


@outcomes.command()
@click.argument("folder", type=_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(folder: Path, as_json: bool) -> None:
    """Summarise FOLDER: score and cost of every model, by task."""
    from rich.console import Console
    from rich.table import Table

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


@outcomes.group(name="import")
def import_() -> None:
    """Make a folder of outcomes from what can be cloned or exported.

    A bad row ends the import with its file and line; --skip-bad leaves bad rows out and counts
    them. docs/formats.md describes every source, and the folder.
    """


@dataclass(frozen=True)
class Target:
    """Where the rows of any source go, and which of them."""

    out: Path
    workers: Path | None
    ids: Path | None
    skip_bad: bool

    def take(self, read: Callable[[Faults], Iterable[Row]], *, latest: bool = False) -> None:
        """Write what `read` yields, and say what was written and what was left out."""
        from conductor_build.importers.rows import Faults
        from conductor_build.importers.write import gather, write_folder
        from conductor_build.outcome_files import read_workers, text_lines

        faults = Faults(skip=self.skip_bad)
        ids = text_lines(self.ids, zipped=False) if self.ids else None
        only = None if ids is None else {line.strip() for line in ids} - {""}
        workers = read_workers(self.workers) if self.workers else {}
        gathered = gather(read(faults), faults, workers=workers, only=only, latest=latest)
        write_folder(self.out, gathered)
        models = len({model for _, model in gathered.rows})
        click.echo(
            f"{self.out}: {len(gathered.rows)} outcomes of {models} models "
            f"on {len(gathered.prompts)} prompts"
        )
        missing = len((only or set()) - gathered.prompts.keys())
        if missing:
            click.echo(f"{missing} of the ids in {self.ids} have no outcome here", err=True)
        if faults.count:
            click.echo("\n".join(faults.shown), err=True)
            click.echo(f"{faults.count} bad rows were left out", err=True)


def _with_target(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every source has; `command` gets them as one `target`."""

    @click.option("--out", type=click.Path(path_type=Path), required=True, help="The new folder.")
    @click.option(
        "--workers", type=_FILE, help="Facts of the models: a workers.csv, copied as far as needed."
    )
    @click.option("--ids", type=_FILE, help="Take only these prompts: a file of ids, one a line.")
    @click.option("--skip-bad", is_flag=True, help="Leave bad rows out and count them.")
    @functools.wraps(command)
    def with_target(
        *args: object,
        out: Path,
        workers: Path | None,
        ids: Path | None,
        skip_bad: bool,
        **options: object,
    ) -> None:
        command(*args, target=Target(out, workers, ids, skip_bad), **options)

    return with_target


@import_.command()
@click.argument("checkout", type=_FOLDER)
@click.option(
    "--task", "tasks", multiple=True, help="math-l5, crux or gsm; all three unless given."
)
@_with_target
def zeroeval(checkout: Path, tasks: tuple[str, ...], target: Target) -> None:
    """ZeroEval's result files. CHECKOUT is a clone of its repository, or its result_dirs."""
    from conductor_build.importers.zeroeval import TASKS, read

    unknown = sorted(set(tasks) - TASKS.keys())
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is none of {', '.join(TASKS)}", param_hint="--task"
        )
    target.take(lambda faults: read(checkout, faults, tuple(dict.fromkeys(tasks or TASKS))))


@import_.command(name="csv")
@click.argument("file", type=_FILE)
@click.option("--task", default="custom", show_default=True, help="Task of rows that name none.")
@click.option("--prompt-column", "prompt", default="prompt", show_default=True)
@click.option("--model-column", "model", default="model", show_default=True)
@click.option("--score-column", "score", default="score", show_default=True)
@click.option("--answer-column", "answer", default="answer", show_default=True)
@click.option("--tokens-column", "tokens", default="tokens", show_default=True)
@click.option("--cost-column", "cost", default="cost", show_default=True)
@click.option("--task-column", "task_column", default="task", show_default=True)
@_with_target
def csv_(file: Path, task: str, task_column: str, target: Target, **columns: str) -> None:
    """One CSV, a line for every answer: prompt, model, answer, score, tokens, cost.

    Scores are 0 to 1, tokens are output tokens, costs are USD a call. The columns of answer,
    tokens, cost and task may be missing.
    """
    from conductor_build.importers.csvfile import Columns, read

    named = Columns(task=task_column, **columns)
    target.take(lambda faults: read(file, faults, named, task))


@import_.command()
@click.argument("logs", type=_FILE, nargs=-1, required=True)
@_with_target
def feedback(logs: tuple[Path, ...], target: Target) -> None:
    """The appliance's log of judged answers. Of two judgements, the later counts."""
    from conductor_build.importers.feedback import read

    target.take(lambda faults: read(logs, faults), latest=True)
