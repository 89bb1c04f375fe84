"""`conductor worker`: one embedded model's own process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from conductor.cli.options import config_option, socket_option
from conductor.errors import StartError

if TYPE_CHECKING:
    from conductor.config import Site
    from conductor.core import Worker
    from conductor.workers.embedded import EmbeddedModel


@click.command()
@click.argument("worker_id", metavar="ID")
@config_option
@socket_option("the worker's own in workers.yaml")
def worker(worker_id: str, config: Path, socket_path: Path | None) -> None:
    """Serve the embedded model of worker ID. `conductor up` and systemd start it for you.

    The model file is checked against the catalogue's hash before it is loaded. The process is
    ready when GET /health on its socket says so, and stops at SIGTERM.
    """
    from conductor.activation.startup import starting
    from conductor.logs import configure
    from conductor.workers.embedded import own_log_stream, run_embedded

    site = starting(config).site
    chosen = _find(site, worker_id)
    model = _model(site, chosen)
    socket = socket_path or _socket(chosen)
    log = site.appliance.log
    configure(log.format, log.level, own_log_stream())
    run_embedded(model, socket.absolute())


def _find(site: Site, worker_id: str) -> Worker:
    embedded = {w.id: w for w in site.workers if w.embedded_model is not None}
    if worker_id not in embedded:
        known = ", ".join(embedded) or "none"
        raise StartError(f"workers.yaml has no embedded worker of that id; it has: {known}")
    return embedded[worker_id]


def _model(site: Site, chosen: Worker) -> EmbeddedModel:
    from conductor.workers.catalogue import find_model, load_catalogue
    from conductor.workers.embedded import EmbeddedModel
    from conductor.workers.fetch import locate

    entry = find_model(load_catalogue(), chosen.embedded_model or "")
    if not entry.answers:
        raise StartError(f"{chosen.id}: {entry.id} is no model that answers: name another")
    limits = chosen.limits
    if limits.context_tokens > entry.context_tokens:
        raise StartError(
            f"{chosen.id}: limits.context_tokens is more than the {entry.context_tokens} that "
            f"{entry.id} was made for: lower it in workers.yaml"
        )
    path = locate(site.appliance.paths.models, entry, verify=True)
    if path is None:
        raise StartError(
            f"the file of {entry.id} is missing or damaged: run 'conductor models pull {entry.id}'"
        )
    return EmbeddedModel(
        path=path.absolute(),
        alias=chosen.model,
        context_tokens=limits.context_tokens,
        max_output_tokens=limits.max_output_tokens,
        parallel=limits.max_in_flight,
        threads=chosen.threads,
    )


def _socket(chosen: Worker) -> Path:
    from conductor.core import UnixEndpoint

    if not isinstance(chosen.endpoint, UnixEndpoint):
        raise StartError(f"{chosen.id} has no Unix socket")
    return chosen.endpoint.path
