"""`conductor egress`: the only process with a network and with vendor keys."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from conductor.cli.options import config_option, socket_option

if TYPE_CHECKING:
    from conductor.config import Site
    from conductor.core import Worker
    from conductor.egress.providers import LiteLLMProvider
    from conductor.process.unixserver import Where
    from conductor.secretrefs import Secret

NOTHING_TO_DO = 78
"""Exit status: the configuration leaves no work (EX_CONFIG of sysexits.h)."""


@click.command()
@config_option
@socket_option("egress.sock in the run directory")
def egress(config: Path, socket_path: Path | None) -> None:
    """Call remote vendors for `serve`, on permit only. `conductor up` and systemd start it for you.

    Ends at once, with status 78, in mode local-only. Needs the 'egress' extra, the vendor keys that
    workers.yaml points at, and permits/permit.pub in the published directory.
    """
    import uvloop

    from conductor.activation.startup import starting
    from conductor.process.openfiles import lift_limit
    from conductor.process.unixserver import handed_over

    lift_limit()
    start = starting(config)
    where = handed_over("egress", socket_path or start.site.appliance.paths.egress_socket)
    above = start.held.highest if start.degraded else None
    uvloop.run(_serve(start.site, where, above))


def rest(why: str) -> NoReturn:
    """End for good, and not as a failure: a manager that starts us again would do so for ever."""
    from conductor.process.manager import notify

    notify(READY=1, STATUS=why)
    click.echo(why, err=True)
    raise SystemExit(NOTHING_TO_DO)


async def _serve(site: Site, where: Where, above: int | None) -> None:
    from conductor.activation.apart import read_apart
    from conductor.activation.store import Store
    from conductor.core import RemoteEndpoint
    from conductor.egress.gate import PermitGate
    from conductor.egress.late import LateProvider
    from conductor.egress.permit import load_public
    from conductor.egress.revisions import Revisions
    from conductor.egress.server import EgressService, new_epoch, serving
    from conductor.logs import configure
    from conductor.process.unixserver import serve_until_stopped
    from conductor.secretrefs import resolve

    appliance = site.appliance
    if appliance.mode == "local-only":
        rest("mode is local-only: nothing may leave, so egress does not start")
    remote = tuple(worker for worker in site.workers if worker.remote)
    if not remote:
        rest("no worker in workers.yaml is remote, so there is nothing to send")
    keys = {w.id: resolve(w.endpoint.key) for w in remote if isinstance(w.endpoint, RemoteEndpoint)}
    log = appliance.log
    configure(log.format, log.level, secrets=[key.reveal() for key in keys.values()])
    store = Store(appliance.paths.published)
    revisions = Revisions(
        site,
        lambda revision: read_apart(site, store.copy(revision).policy),
        grace_s=appliance.limits.total_s,
        above=above,
    )
    gate = PermitGate(
        load_public(appliance.paths.permit_public),
        new_epoch(),
        revisions,
        max_ttl_s=appliance.egress.permit_ttl_s + 1.0,
    )
    late = LateProvider()
    service = EgressService(
        gate,
        late,
        max_body_bytes=2 * appliance.api.max_body_bytes,
        revisions=revisions,
        late=late,
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(late.loading(partial(_loaded, remote, keys, stack)))
        await stack.enter_async_context(revisions.following(lambda: store.held().highest))
        await serve_until_stopped(serving(where, service, drain_s=appliance.api.drain_s), where)


async def _loaded(
    remote: tuple[Worker, ...], keys: dict[str, Secret], stack: AsyncExitStack
) -> LiteLLMProvider:
    """The vendors' library, imported beside the event loop, once it has proved what it does."""
    from conductor.egress.providers import LiteLLMProvider, load_litellm

    await asyncio.to_thread(load_litellm)
    provider = await stack.enter_async_context(LiteLLMProvider(remote, keys))
    await provider.prove()
    return provider
