"""`conductor up`: every process of the appliance from one command, for a laptop or a first look.

Under systemd each process is a hardened unit of its own instead. What is missing is made on the
first start and said aloud: state directories, API keys named by file, the permit key pair.
Nothing is downloaded.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import click

from conductor.activation.startup import starting
from conductor.cli.firststart import check_free, lock_run, prepare
from conductor.cli.models import missing_models
from conductor.cli.options import config_option
from conductor.config import Site
from conductor.core import RemoteEndpoint, SecretRef, UnixEndpoint, Worker
from conductor.process.probe import answers
from conductor.process.supervise import Child, Supervisor
from conductor.workers.catalogue import ENCODER_ID, NAMES_ID, load_catalogue
from conductor.workers.fetch import locate

PLANNER_READY_S = 30.0
WORKER_READY_S = 120.0
EGRESS_READY_S = 60.0
WITHOUT_KEYS_S = 1.0
SERVE_READY_S = 30.0

KEPT_ENV = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")


@click.command()
@config_option
@click.option(
    "--log-file",
    type=click.Path(path_type=Path),
    help="Where the processes' own logs go.  [default: this terminal]",
)
def up(config: Path, log_file: Path | None) -> None:
    """Start everything on this machine and keep it running; Ctrl-C stops it.

    \b
    Processes: serve (API), planner, one per embedded model, and, only in mode "connected", egress.
    A process that dies is started again. The API key of a first start is written to the file that
    appliance.yaml names for it.
    """
    asyncio.run(_up(config, log_file))


async def _up(config: Path, log_file: Path | None) -> None:
    start = starting(config)
    site = start.site
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    with ExitStack() as stack:
        stack.enter_context(lock_run(site.appliance.paths.run))
        check_free(site.appliance.api)
        for line in prepare(site):
            _echo(line)
        if start.candidate_differs:
            _echo("policy.yaml is not the policy in force: see 'conductor policy apply'")
        if start.degraded:
            _echo(f"degraded: {start.degraded}")
        output = stack.enter_context(log_file.open("ab")) if log_file is not None else None
        async with _running(site, config, Supervisor(_say, output), stop):
            await stop.wait()
            _echo("stopping")


@asynccontextmanager
async def _running(
    site: Site, config: Path, supervisor: Supervisor, stop: asyncio.Event
) -> AsyncIterator[None]:
    if site.policy.profile.names and NAMES_ID in missing_models(site):
        _say("serve", f"no model file: run 'conductor models pull {NAMES_ID}'")
        _say("serve", "names cannot be sought, so that nothing remote is reached")
    helpers = [*_planner(site, config), *_workers(site, config), *_egress(site, config)]
    serve = _serve(site, config)
    try:
        for child, _ in helpers:
            supervisor.start(child)
        waits = [_await_ready(supervisor, child, limit_s) for child, limit_s in helpers]
        await _unless(stop, asyncio.gather(*waits))
        if not stop.is_set():
            supervisor.start(serve)
            api = site.appliance.api
            if await _unless(stop, supervisor.ready(serve, SERVE_READY_S)):
                _echo(f"ready: http://{api.host}:{api.port}/v1")
        yield
    finally:
        await supervisor.stop(serve)
        await asyncio.gather(*(supervisor.stop(child) for child, _ in helpers))


async def _await_ready(supervisor: Supervisor, child: Child, limit_s: float) -> None:
    if await supervisor.ready(child, limit_s):
        _say(child.name, "ready")
    else:
        _say(child.name, f"not ready after {limit_s:g} s; going on without it")


async def _unless(stop: asyncio.Event, work: Awaitable[object]) -> object:
    """Await `work`, or give it up when `stop` is set first."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


def _planner(site: Site, config: Path) -> list[tuple[Child, float]]:
    if site.appliance.planner.engine == "pocket" and ENCODER_ID in missing_models(site):
        _say("planner", f"no model file: run 'conductor models pull {ENCODER_ID}'")
        _say("planner", "going on with the written-down rule")
        return []
    ready = _answering(site.appliance.paths.planner_socket, "/readyz")
    return [(_child("planner", ["planner"], config, {}, ready), PLANNER_READY_S)]


def _egress(site: Site, config: Path) -> list[tuple[Child, float]]:
    keys = [w.endpoint.key for w in site.workers if isinstance(w.endpoint, RemoteEndpoint)]
    if not keys:
        return []
    missing = sorted({where for key in keys if (where := _missing(key))})
    for where in missing:
        _say("egress", f"no vendor key in {where}: nothing remote is reached until it is there")
    socket = site.appliance.paths.egress_socket
    child = _child("egress", ["egress"], config, _secrets(keys), _answering(socket, "/readyz"))
    # Without its keys it cannot begin: nobody needs to wait for that.
    return [(child, WITHOUT_KEYS_S if missing else EGRESS_READY_S)]


def _missing(key: SecretRef) -> str:
    """Where a secret is to be put; "" when something is there. A credential is systemd's matter."""
    if key.scheme == "file" and not Path(key.name).exists():
        return f"{key.name} (mode 600)"
    if key.scheme == "env" and key.name not in os.environ:
        return f"the environment variable {key.name}"
    return ""


def _workers(site: Site, config: Path) -> list[tuple[Child, float]]:
    catalogue = load_catalogue()
    children = []
    for worker in site.workers:
        if worker.embedded_model is None:
            continue
        if locate(site.appliance.paths.models, catalogue[worker.embedded_model]) is None:
            _say(worker.id, f"no model file: run 'conductor models pull {worker.embedded_model}'")
            continue
        children.append((_worker(worker, config), WORKER_READY_S))
    return children


def _worker(worker: Worker, config: Path) -> Child:
    if not isinstance(worker.endpoint, UnixEndpoint):
        raise TypeError(f"embedded worker {worker.id} has no Unix socket")
    ready = _answering(worker.endpoint.path, "/health")
    return _child(worker.id, ["worker", worker.id], config, {}, ready)


def _serve(site: Site, config: Path) -> Child:
    keys = [key.secret for key in site.appliance.keys if key.secret is not None]
    admin = (site.appliance.api.admin_host, site.appliance.api.admin_port)
    return _child(
        "serve",
        ["serve"],
        config,
        _secrets(keys),
        lambda: answers(admin, "/healthz"),
        stop_s=site.appliance.api.drain_s + 5,
    )


def _child(
    name: str,
    verb: list[str],
    config: Path,
    secrets: dict[str, str],
    ready: Callable[[], Awaitable[bool]],
    stop_s: float = 5.0,
) -> Child:
    argv = [sys.executable, "-m", "conductor", *verb, "--config", str(config)]
    kept = {name: os.environ[name] for name in KEPT_ENV if name in os.environ}
    return Child(name, argv, {**kept, **secrets}, ready, stop_s)


def _secrets(refs: list[SecretRef]) -> dict[str, str]:
    """Only those variables that a process's own configuration names: no key for its siblings."""
    names = [ref.name for ref in refs if ref.scheme == "env"]
    names += ["CREDENTIALS_DIRECTORY"] * any(ref.scheme == "credential" for ref in refs)
    return {name: os.environ[name] for name in names if name in os.environ}


def _answering(socket: Path, path: str) -> Callable[[], Awaitable[bool]]:
    return lambda: answers(socket, path)


def _say(name: str, what: str) -> None:
    _echo(f"{name:<22} {what}")


def _echo(line: str) -> None:
    """Tell the terminal. Should it be gone, or its disk full, the children must not go with it."""
    with suppress(OSError):
        click.echo(line)
