"""The whole appliance in one process for a test: real sockets, real `serve`, real egress.

    async with appliance(directory) as box:
        await box.client().chat.completions.create(...)

`box.local` and `box.vendor` are recording servers that stand for local workers and for the remote
vendor; a worker's model name selects its behaviour (see `conductor.simulated.behaviours`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI

from conductor.activation.store import Store
from conductor.api.server import Server, serving
from conductor.cli.firststart import prepare
from conductor.config import Site
from conductor.core import RemoteEndpoint
from conductor.egress import server as egress
from conductor.egress.gate import PermitGate
from conductor.egress.permit import load_public
from conductor.egress.providers import LiteLLMProvider
from conductor.egress.revisions import Revisions
from conductor.planner.default import DefaultEngine
from conductor.secretrefs import Secret
from conductor.simulated.vendor import SimulatedVendor
from support.clients import http_client, openai_client
from support.configs import KEY, TRUSTED_KEY, Tree, local_worker, remote_worker, small_site
from support.soon import until

IBAN = "IT60X0542811101000000123456"
LOCAL, REMOTE = "local-a", "remote-a"
CLEAN = "What is the capital of Italy?"


@dataclass
class Box:
    """A running appliance and the servers behind it."""

    site: Site
    server: Server
    local: SimulatedVendor
    vendor: SimulatedVendor
    _clients: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.server.admin_port}"

    def client(self, key: str = KEY, **more: Any) -> AsyncOpenAI:
        """The official client, without its own retries; closed with the box."""
        client = openai_client(f"{self.url}/v1", key, **more)
        self._clients.append(client)
        return client

    def http(self, key: str = KEY) -> httpx.AsyncClient:
        """A plain HTTP client with the key set; closed with the box."""
        headers = {"Authorization": f"Bearer {key}"}
        client = http_client(self.url, headers=headers)
        self._clients.append(client)
        return client

    async def ask(self, text: str = CLEAN, model: str = "conductor", **more: Any) -> Any:
        """One plain question through the official client."""
        messages = more.pop("messages", [{"role": "user", "content": text}])
        client = self.client(more.pop("key", KEY))
        return await client.chat.completions.create(model=model, messages=messages, **more)

    async def close_clients(self) -> None:
        for client in self._clients:
            await (client.aclose() if isinstance(client, httpx.AsyncClient) else client.close())


@contextmanager
def short_directory() -> Iterator[Path]:
    """A directory whose path leaves room for Unix socket names."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def appliance(
    *,
    workers: Sequence[Tree] | None = None,
    appliance: Tree | None = None,
    policy: Tree | None = None,
    with_egress: bool = True,
) -> AsyncIterator[Box]:
    """Start it with one local and one remote worker, or with `workers`.

    In `workers` the ports of the two servers stand as `local_port` and `vendor_url` in the format
    placeholders `{local}` and `{vendor}`.
    """
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(short_directory())
        local = await stack.enter_async_context(SimulatedVendor())
        vendor = await stack.enter_async_context(SimulatedVendor())
        ports = {"local": await local.start_tcp(), "vendor": await vendor.start_tcp()}
        pool = [_placed(worker, ports) for worker in workers or default_workers()]
        site = small_site(directory, workers=pool, appliance=appliance, policy=policy)
        prepare(site)
        remote = any(worker.remote for worker in site.workers)
        if remote and with_egress:
            await stack.enter_async_context(egress_of(site))
        server = await stack.enter_async_context(serving(site))
        box = Box(site, server, local, vendor)
        stack.push_async_callback(box.close_clients)
        yield box


def default_workers() -> list[Tree]:
    """One worker at home, one abroad; the one abroad is the better and the dearer."""
    good = {"skill": {"general": 0.95}, "output_tokens_per_s": 80, "source": "declared"}
    return [
        local_worker(LOCAL, port=0, model="echo"),
        remote_worker(REMOTE, "{vendor}", model="echo", card=good),
    ]


def _placed(worker: Tree, ports: dict[str, int]) -> Tree:
    worker = dict(worker)
    if worker.get("tcp") == "127.0.0.1:0":
        worker["tcp"] = f"127.0.0.1:{ports['local']}"
    if worker.get("remote", {}).get("base_url") == "{vendor}":
        base_url = f"http://127.0.0.1:{ports['vendor']}/v1"
        worker["remote"] = {**worker["remote"], "base_url": base_url}
    return worker


@asynccontextmanager
async def egress_of(site: Site) -> AsyncIterator[None]:
    """The egress process's inside, on its real socket, with litellm behind it."""
    public = load_public(site.appliance.paths.permit_public)
    remote = tuple(w for w in site.workers if isinstance(w.endpoint, RemoteEndpoint))
    store = Store(site.appliance.paths.published)
    revisions = Revisions(site, lambda number: site.with_policy(store.copy(number).policy), 600.0)
    gate = PermitGate(public, egress.new_epoch(), revisions)
    keys = {worker.id: Secret("simulated-key") for worker in remote}
    async with LiteLLMProvider(remote, keys) as provider:
        await provider.prove()  # as the process does: it also loads litellm, warnings and all
        service = egress.EgressService(
            gate, provider, max_body_bytes=64 * 1024 * 1024, revisions=revisions
        )
        socket = site.appliance.paths.egress_socket
        async with egress.serving(socket, service, drain_s=0.1):
            yield


__all__ = ["CLEAN", "DefaultEngine", "IBAN", "TRUSTED_KEY", "Box", "appliance", "until"]
