"""`conductor egress` as a process: killed, started again, and watched for other connections."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.egress.client import EgressLink
from conductor.egress.permit import Permit, boottime_ns, digest, generate, load_private, mint
from conductor.process.probe import answers
from conductor.simulated.vendor import SimulatedVendor
from support.configs import remote_worker, write_site
from support.vendor import VENDOR_KEY, chat_body, short_directory

pytestmark = pytest.mark.timeout(300)
"""It starts whole processes, which a busy machine may give little time."""

COMMAND = [sys.executable, "-m", "conductor", "egress", "--config"]
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    "SIMULATED_VENDOR_KEY": VENDOR_KEY,
}


@asynccontextmanager
async def started(directory: Path, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`conductor egress`; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        str(directory),
        env={**ENVIRONMENT, **environment},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def is_ready(socket: Path, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(100):
        while not await answers(socket, "/readyz"):
            assert process.returncode is None
            await asyncio.sleep(0.05)


@asynccontextmanager
async def site(**changes: Any) -> AsyncIterator[tuple[Path, SimulatedVendor]]:
    """A configured site with permit keys and a running vendor."""
    async with SimulatedVendor() as vendor:
        url = f"http://127.0.0.1:{await vendor.start_tcp()}/v1"
        with short_directory() as directory:
            write_site(directory, workers=[remote_worker("ok", url)], **changes)
            generate(*(directory / "s" / "permits" / f"permit.{kind}" for kind in ("key", "pub")))
            yield directory, vendor


def permit(body: bytes, epoch: str) -> Permit:
    return Permit(
        id=uuid4().hex,
        body_sha256=digest(body),
        worker="ok",
        destination="frontier",
        label="internal",
        policy_revision=1,
        decision_id="d",
        epoch=epoch,
        expires_boottime_ns=boottime_ns() + 25 * 10**9,
    )


async def post(socket: Path, key: Ed25519PrivateKey, leave: Permit, body: bytes) -> str:
    """The outcome of a request: its status, or the reason why its permit was refused."""
    headers = {"x-conductor-permit": mint(key, leave), "x-conductor-worker": leave.worker}
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
        url = "http://egress/v1/chat/completions"
        async with session.post(url, data=body, headers=headers) as response:
            await response.read()
            return response.headers.get("x-conductor-reason", str(response.status))


async def test_no_permit_survives_a_kill_and_egress_comes_back_on_its_socket() -> None:
    async with site() as (directory, vendor):
        key, socket = load_private(directory / "s/permits/permit.key"), directory / "r/egress.sock"
        link, body = EgressLink(socket), chat_body()
        async with started(directory) as process:
            await is_ready(socket, process)
            used = permit(body, await link.epoch())
            assert await post(socket, key, used, body) == "200"
            assert await post(socket, key, used, body) == "replay"
            process.send_signal(signal.SIGKILL)
            await process.communicate()
        async with started(directory) as process:
            await is_ready(socket, process)
            link.invalidate()
            assert await post(socket, key, used, body) == "epoch"
            assert await post(socket, key, permit(body, used.epoch), body) == "epoch"
            assert len(vendor.requests) == 1
            fresh = permit(body, await link.epoch())
            assert fresh.epoch != used.epoch
            assert await post(socket, key, fresh, body) == "200"
            process.terminate()
            _, errors = await process.communicate()
        assert process.returncode == 0
        assert not socket.exists()
        assert VENDOR_KEY.encode() not in errors
        assert b"hello" not in errors


@pytest.mark.parametrize(
    ("appliance", "environment", "says"),
    [
        ({"mode": "local-only"}, {}, b"local-only"),
        (None, {"SIMULATED_VENDOR_KEY": ""}, b"env:SIMULATED_VENDOR_KEY"),
    ],
)
async def test_egress_does_not_start_when_it_may_not_or_cannot_send(
    appliance: dict[str, Any] | None, environment: dict[str, str], says: bytes
) -> None:
    async with site(appliance=appliance) as (directory, vendor):
        async with started(directory, **environment) as process:
            _, errors = await process.communicate()
        assert process.returncode == 1
        assert says in errors
        assert b"Traceback" not in errors
        assert not (directory / "r/egress.sock").exists()
        assert vendor.received == b""


WATCHED = """
import asyncio, ipaddress, sys

seen = []

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.bind"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else "::1"
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        seen.append((event, str(host)))
        raise OSError("this machine has no network")

sys.addaudithook(watch)
from support.vendor import remote_worker, VENDOR_KEY
from conductor.egress.providers import LiteLLMProvider
from conductor.errors import WorkerError
from conductor.secretrefs import Secret

async def main(port):
    models = ("ok", "no-usage", "gpt-5.4", "responses/x", "status-500", "cut-mid-stream")
    workers = tuple(remote_worker(port, model) for model in models)
    keys = {worker.id: Secret(VENDOR_KEY) for worker in workers}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    messages = [{"role": "user", "content": "hello"}]
    async with LiteLLMProvider(workers, keys) as provider:
        await provider.prove()
        for worker in workers:
            body = {"model": worker.model, "messages": messages, "tools": tools}
            try:
                await provider.complete(worker, body)
                body |= {"stream": True, "stream_options": {"include_usage": True}}
                async with provider.stream(worker, body) as chunks:
                    async for _ in chunks:
                        pass
            except WorkerError:
                pass
    await asyncio.sleep(0.3)  # whatever it does in the background

asyncio.run(main(int(sys.argv[1])))
print(seen)
"""


async def test_litellm_reaches_only_the_vendor_and_writes_nothing_down_in_any_environment() -> None:
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            WATCHED,
            str(port),
            env={
                **ENVIRONMENT,
                "HTTP_PROXY": "http://192.0.2.1:3128",
                "OPENAI_BASE_URL": "http://192.0.2.1/v1",
                "OPENAI_ORG_ID": "org-of-somebody",
                "OPENAI_LOG": "debug",
                "LITELLM_LOG": "DEBUG",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        for word in (b"hello", VENDOR_KEY.encode(), str(port).encode(), b"canned"):
            assert word not in output
        assert b"org-of-somebody" not in vendor.received
        assert output.splitlines()[-1:] == [b"[]"]
        assert len(vendor.requests) == 10  # two each, one where the first fails
