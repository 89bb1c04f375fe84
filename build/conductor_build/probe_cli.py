"""`conductor-build probe`: measure the cards of a site's workers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.errors import ConductorError

if TYPE_CHECKING:
    from conductor.config import Site
    from conductor.core import Caller, Worker
    from conductor_build.probe import Settings
    from conductor_build.tasks.common import Task
    from conductor_build.tasks.gym import Verifier

KEY = "CONDUCTOR_API_KEY"


@dataclass(frozen=True)
class Wanted:
    """What is asked of whom."""

    files: tuple[Path, ...]
    each: int
    seed: int
    workers: tuple[str, ...]
    remote: bool


@click.command()
@click.argument(
    "config", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="CONFIGS"
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="Where the cards go; the journal stands beside it.")  # fmt: skip
@click.option("--tasks", "files", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              multiple=True, metavar="FILE", help="Questions of your own (JSON lines, "
              "docs/formats.md) instead of the built-in ones.")  # fmt: skip
@click.option("--each", type=click.IntRange(1, 10_000), default=6, show_default=True,
              help="Questions of each of the ten generators.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**31), default=1, show_default=True)
@click.option("--worker", "workers", multiple=True, metavar="ID", help="Only these workers.")
@click.option("--remote", is_flag=True, help=f"Remote workers too, by way of the running "
              f"appliance; its key is in {KEY}. Costs money.")  # fmt: skip
@click.option("--max-cost-usd", type=click.FloatRange(0), default=5.0, show_default=True,
              help="Ask no more once this run has cost as much.")  # fmt: skip
@click.option("--at-once", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Questions at a time to one worker; more than one hides its speed.")  # fmt: skip
@click.option("--max-tokens", type=click.IntRange(1), default=512, show_default=True,
              help="Of one answer.")  # fmt: skip
@click.pass_context
def probe(
    context: click.Context, /, config: Path, out: Path, max_cost_usd: float, at_once: int,
    max_tokens: int, **wanted: Any,
) -> None:  # fmt: skip
    """Measure the cards of the workers in CONFIGS/workers.yaml, on questions with known answers.

    Local workers must be running. What is known already is in a journal beside --out: after a kill
    the same command goes on from there.

    \b
    Exit codes:
      0    every worker has a card
      1    some worker gave no answer that could be scored; the others' cards are written
      2    the configuration, the questions or the journal cannot be used
      130  stopped by Ctrl-C: the same command goes on
    """
    from conductor_build.probe import Settings

    settings = Settings(max_tokens=max_tokens, at_once=at_once, max_cost_usd=max_cost_usd)
    try:
        sys.exit(_probe(config, out, settings, Wanted(**wanted)))
    except KeyboardInterrupt:
        click.echo("stopped: the same command goes on from here", err=True)
        sys.exit(130)
    except ConductorError as error:
        click.echo(str(error), err=True)
        context.exit(2)


def _probe(config: Path, out: Path, settings: Settings, wanted: Wanted) -> int:
    import orjson

    from conductor.config import load
    from conductor_build import probe_cards
    from conductor_build.files import replace_file
    from conductor_build.probe_journal import digest_of, opened
    from conductor_build.tasks.gym import Verifier

    site = load(config)
    workers = _chosen(site, wanted)
    verifier = Verifier()
    try:
        task = _task(wanted, verifier)
        tasks, how = digest_of(task), settings.digest()
        with opened(out.with_name(f"{out.name}.journal"), tasks, how) as journal:
            asyncio.run(_ask(site, workers, task, settings, journal))
            told = {
                "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "tasks": tasks,
                "settings": how,
                "questions": len(task),
            }
            found = probe_cards.document(workers, journal.rows, told)
    finally:
        verifier.close()
    replace_file(out, orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    _show(found)
    return 0 if all(one["card"] for one in found["workers"].values()) else 1


def _chosen(site: Site, wanted: Wanted) -> list[Worker]:
    from conductor_build.probe_journal import ProbeError

    unknown = set(wanted.workers) - set(site.worker_by_id)
    if unknown:
        raise ProbeError(f"workers.yaml has no worker {min(unknown)!r}")
    named = [one for one in site.workers if not wanted.workers or one.id in wanted.workers]
    chosen = [one for one in named if wanted.remote or not one.remote]
    for worker in named:
        if worker not in chosen:
            click.echo(f"{worker.id}: remote, not asked without --remote", err=True)
    if not chosen:
        raise ProbeError("there is no worker to be asked: give --remote, or other workers")
    if any(one.remote for one in chosen) and not os.environ.get(KEY):
        raise ProbeError(f"remote workers are asked through the appliance: put a key into {KEY}")
    return chosen


def _task(wanted: Wanted, verifier: Verifier) -> Task:
    from conductor_build.tasks.calibration import calibration
    from conductor_build.tasks.jsonl import JsonlTask
    from conductor_build.tasks.views import Mixture

    if not wanted.files:
        return calibration(wanted.each, wanted.seed, verifier)
    return Mixture([(path.name, JsonlTask.read(path)) for path in wanted.files])


async def _ask(
    site: Site, workers: Sequence[Worker], task: Task, settings: Settings, journal: Any
) -> None:
    from conductor.workers.http import HttpCaller
    from conductor_build.probe import Probe
    from conductor_build.probe_api import ApiCaller
    from conductor_build.probe_progress import watching

    local = HttpCaller()
    api = site.appliance.api
    far = ApiCaller(f"http://{api.host}:{api.port}/v1", os.environ.get(KEY, ""))

    def callers(worker: Worker) -> Caller:
        return far if worker.remote else local

    try:
        total = {one.id: len(task) for one in workers}
        with watching([one.id for one in workers], total) as watch:
            await Probe(task, callers, settings, watch).run(workers, journal)
    finally:
        await local.close()


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from conductor_build.probe_cards import as_yaml

    table = Table("worker", "domain", "right", "95 %", "tokens", "USD per 1,000", "void")
    for name, worker in found["workers"].items():
        void = ", ".join(f"{count} {why}" for why, count in worker["void"].items())
        for domain, one in worker["domains"].items():
            right = f"{one['right']:g} of {one['asked']}"
            span = f"{one['low']:.2f} to {one['high']:.2f}"
            usd = f"{one['usd_per_1k']:g}"
            table.add_row(name, domain, right, span, f"{one['output_tokens']:g}", usd, void)
        if not worker["domains"]:
            table.add_row(name, "", "no answer could be scored", "", "", "", void)
    Console(stderr=True).print(table)
    click.echo(as_yaml(found), nl=False)
