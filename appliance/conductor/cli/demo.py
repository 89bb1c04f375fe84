"""`conductor demo`: the main job for real, on this machine, in about two minutes.

Real: every process of the appliance, the embedded models, the sockets, the policy, the official
`openai` client. Simulated: the frontier vendor, which has no intelligence and answers with canned
words; it stands for a cloud that must not see sensitive data, and it records all it is sent.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
from rich.console import Console

from conductor.cli.demoreport import judge, show_answers
from conductor.cli.demorequests import REQUESTS, ask
from conductor.cli.models import needed_models
from conductor.cli.progress import tenths
from conductor.config import POLICY, Site, load
from conductor.errors import StartError
from conductor.process.probe import answers
from conductor.process.supervise import PARENT
from conductor.simulated.vendor import SimulatedVendor

START_S = 150.0
SIMULATED_KEY = "SIMULATED_VENDOR_KEY"


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("configs/demo"),
    show_default=True,
    help="Directory with the demo's configuration.",
)
def demo(config: Path) -> None:
    """Start everything, send real requests, show who saw what, stop everything.

    Exits 1 when a request went otherwise than it should, or anything sensitive reached the vendor.
    """
    console = Console(width=None if sys.stdout.isatty() else 132)
    pull_models(console, config)
    asyncio.run(put_in_force(console, config))
    raise SystemExit(asyncio.run(_demo(config, console)))


def pull_models(console: Console, config: Path) -> None:
    """Fetch the models' files. It goes on without any but those of the first worker: without the
    planner's the written-down rule plans, without the tagger's nothing leaves the machine."""
    from conductor.workers.catalogue import ENCODER_ID, NAMES_ID, load_catalogue, with_needed
    from conductor.workers.fetch import locate, pull

    site = load(config)
    folder, catalogue = site.appliance.paths.models, load_catalogue()
    say = tenths(lambda line: console.print(f"  {line}", highlight=False))
    needed = needed_models(site)
    optional = (ENCODER_ID, NAMES_ID)
    first = next((name for name in needed if name not in optional), None)
    for model in (model for name in needed for model in with_needed(catalogue, name)):
        if locate(folder, model) is not None:
            continue
        console.print(f"fetching the model {model.id} (once)")
        try:
            pull(model, folder, say)
        except StartError as error:
            if model.id == first:
                raise
            console.print(f"  not to be had here, going on without it: {error}")


async def put_in_force(console: Console, config: Path) -> None:
    """Apply the demo's policy where an earlier demo left another one in force. Raises
    `StartError`."""
    from conductor.activation.desk import Wish
    from conductor.activation.offline import at_desk
    from conductor.activation.startup import starting

    if not starting(config).candidate_differs:
        return
    console.print("applying policy.yaml: another one is in force from an earlier demo")
    wish = Wish((config / POLICY).read_bytes())
    outcome = await at_desk(config, lambda desk, who: desk.apply(wish, who))
    if not outcome.in_force:
        why = "; ".join(map(str, outcome.report.problems))
        raise StartError(f"it was refused: {why}")


async def _demo(config: Path, console: Console) -> int:
    site = load(config)
    async with SimulatedVendor() as vendor:
        await vendor.start_tcp(port=_vendor_port(site))
        console.print("simulated frontier vendor: listening, records every byte it is sent")
        async with _appliance(site, config, console):
            told = [await ask(site, asked, console) for asked in REQUESTS]
        show_answers(console, site, told)
        return judge(console, told, vendor)


@asynccontextmanager
async def _appliance(site: Site, config: Path, console: Console) -> AsyncIterator[None]:
    """`conductor up` as a process of its own; its processes log to a file."""
    log = site.appliance.paths.state / "demo.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    console.print(f"starting: conductor up --config {config} (logs in {_short(log)})")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "conductor", "up"),
        *("--config", str(config), "--log-file", str(log)),
        env={
            **os.environ,
            SIMULATED_KEY: "simulated",
            "PYTHONUNBUFFERED": "1",
            PARENT: str(os.getpid()),
        },
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        admin = (site.appliance.api.admin_host, site.appliance.api.admin_port)
        deadline = time.monotonic() + START_S
        while not await answers(admin, "/readyz"):
            if process.returncode is not None or time.monotonic() > deadline:
                raise StartError(f"the appliance did not start; see {_short(log)}")
            await asyncio.sleep(0.1)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _vendor_port(site: Site) -> int:
    from urllib.parse import urlsplit

    from conductor.core import RemoteEndpoint

    for worker in site.workers:
        if isinstance(worker.endpoint, RemoteEndpoint) and worker.endpoint.base_url:
            port = urlsplit(worker.endpoint.base_url).port
            if port is not None:
                return port
    raise StartError("the demo's workers.yaml names no vendor on this machine")


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
