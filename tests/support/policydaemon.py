"""`conductor up` with a local and two remote workers, under a policy whose life a test follows.

The policy seeks no names, so that no model files are needed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from conductor.activation.adminclient import ask
from conductor.cli.policyoptions import PURPOSE
from conductor.config import POLICY
from conductor.process.keyfiles import generate
from conductor.simulated.vendor import SimulatedVendor
from support.appliance import short_directory
from support.appliedpolicies import policy_bytes
from support.configs import local_worker, policy_tree, remote_worker
from support.processes import VENDOR_KEY, Api, Up, command, environment, fixed_ports, site_of, up
from support.soon import SOON_S

SLOW, FAST = "far-slow", "far"
NAMELESS = [
    one for one in policy_tree()["classify"] if one["when"]["detector"] not in ("person", "address")
]


def policy(revision: int, **changes: Any) -> bytes:
    """A policy that passes every gate and lets ordinary work out."""
    return policy_bytes(revision, **{"classify": NAMELESS, **changes})


def shut(revision: int, **changes: Any) -> bytes:
    """A policy that lets nothing out."""
    base: dict[str, Any] = json.loads(policy(revision))
    return policy(revision, rules=[], tests=base["tests"][:1], **changes)


@dataclass
class Daemon:
    """A running appliance, its vendor, and both of its doors."""

    up: Up
    directory: Path
    ports: dict[str, int]
    api: Api
    vendor: SimulatedVendor
    keys: Path = Path()
    """Where approvers' private keys are, if any."""

    async def typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A `conductor` command as it is typed, on this site."""
        return await asyncio.to_thread(typed, self.directory, *words)

    async def apply(self, candidate: bytes, **more: Any) -> dict[str, Any]:
        """What the appliance says to a candidate."""
        return await self.admin("POST", "/v1/policy", {"policy": candidate.decode(), **more})

    async def admin(self, method: str, path: str, body: object | None = None) -> dict[str, Any]:
        """One question on the administrators' socket."""
        return await asyncio.to_thread(ask, self.directory / "r", method, path, body)

    async def revision(self) -> int:
        """Of the policy in force, by the status page."""
        return int((await self.api.status())["policy"]["revision"])

    async def ask(self, model: str = FAST, **more: Any) -> httpx.Response:
        return await self.api.ask(model, **more)

    async def kill(self, name: str) -> None:
        """SIGKILL to a child, and wait until `up` has it running and answering again."""
        old = self.up.kill(name)
        await self.up.again(name, old)
        await self.settled()

    async def settled(self) -> None:
        """Wait until the API is ready and egress lets a permit be used, or policy says no."""

        async def fine() -> bool:
            return (await self.ask()).status_code in (200, 403)

        await self.api.until(fine)

    def records(self, event: str = "policy") -> list[dict[str, Any]]:
        """Records of the audit log, as far as they are whole."""
        lines = [
            line
            for path in sorted((self.directory / "a").glob("audit-*.jsonl"))
            for line in path.read_text().split("\n")[:-1]
        ]
        return [one for one in map(json.loads, lines) if one.get("event") == event]


def approver(folder: Path, name: str) -> dict[str, str]:
    """Makes an approver's key pair in a folder; the entry for the policy."""
    key = generate(folder / f"{name}.key", folder / f"{name}.pub", PURPOSE)
    return {"id": name, "public_key": b64encode(key.public_bytes_raw()).decode("ascii")}


def typed(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A `conductor` command as it is typed, on this site."""
    return subprocess.run(
        command(*words, "--config", str(directory)),
        env=environment(COLUMNS="100"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SOON_S,
        check=False,
    )


@contextmanager
def prepared(candidate: bytes | None = None) -> Iterator[tuple[Path, dict[str, int], int]]:
    """The folder of such a site, its ports, and the port where the vendor is expected."""
    with short_directory() as directory:
        ports = fixed_ports()
        vendor_port = fixed_ports()["port"]
        url = f"http://127.0.0.1:{vendor_port}/v1"
        workers = [
            local_worker("near", unix=directory / "w.sock", model="echo"),
            remote_worker(FAST, url, model="echo"),
            remote_worker(SLOW, url, model="slow-chunks-300"),
        ]
        site_of(directory, workers, api=ports)
        (directory / POLICY).write_bytes(candidate or policy(1))
        yield directory, ports, vendor_port


@asynccontextmanager
async def daemon(candidate: bytes | None = None) -> AsyncIterator[Daemon]:
    """It is up and its vendor answers."""
    with prepared(candidate) as (directory, ports, vendor_port):
        async with SimulatedVendor() as vendor, SimulatedVendor() as local, Api(**ports) as api:
            await local.start_unix(directory / "w.sock")
            await vendor.start_tcp(port=vendor_port)
            with up(directory, SIMULATED_VENDOR_KEY=VENDOR_KEY) as running:
                yield Daemon(running, directory, ports, api, vendor)
