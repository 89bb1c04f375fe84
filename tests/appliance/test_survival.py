"""Every process is killed while the others work: they say so, go on, and recover by themselves.

One `conductor up` serves most tests of this file, one after the other: each leaves it as it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from conductor.simulated.vendor import SimulatedVendor
from support.appliance import short_directory
from support.configs import local_worker, remote_worker
from support.leaving import RawClient
from support.processes import (
    VENDOR_KEY,
    Api,
    Up,
    command,
    dead,
    environment,
    free_port,
    limit_file_size,
    site_of,
    up,
)
from support.soon import SOON_S

pytestmark = pytest.mark.timeout(300)
"""It starts whole processes, which a busy machine may give little time."""

ROOT = Path(__file__).parents[2]
GOOD = {"skill": {"general": 0.95}, "output_tokens_per_s": 80, "source": "declared"}
NAMES = ("planner", "egress", "serve")


@dataclass
class Site:
    """A running appliance, and where the servers behind it are to listen."""

    up: Up
    directory: Path
    api: dict[str, int]
    local_socket: Path
    vendor_port: int


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with short_directory() as directory:
        socket, port = directory / "w.sock", free_port()
        url = f"http://127.0.0.1:{port}/v1"
        workers = [
            local_worker("local-a", unix=socket, model="echo"),
            local_worker("local-mid", unix=socket, model="stall-mid-stream"),
            remote_worker("remote-a", url, model="echo", card=GOOD),
            remote_worker("remote-mid", url, model="stall-mid-stream"),
            remote_worker("remote-stall", url, model="stall"),
        ]
        ports = {"port": free_port(), "admin_port": free_port()}
        site_of(directory, workers, api=ports)
        with up(directory, SIMULATED_VENDOR_KEY=VENDOR_KEY) as running:
            yield Site(running, directory, ports, socket, port)


@dataclass
class World:
    """The appliance with both servers behind it at work."""

    site: Site
    up: Up
    api: Api
    local: SimulatedVendor
    vendor: SimulatedVendor

    async def whole(self) -> None:
        """Wait until nothing shows that anything ever happened."""
        for model in ("local-a", "remote-a"):
            await self.api.answers(model)

        async def planned() -> bool:
            answer = await self.api.ask("conductor")
            return answer.headers.get("x-conductor-engine") == "default@planner"

        await self.api.until(planned)


@pytest_asyncio.fixture
async def world(site: Site) -> AsyncIterator[World]:
    async with SimulatedVendor() as local, SimulatedVendor() as vendor, Api(**site.api) as api:
        site.local_socket.unlink(missing_ok=True)
        await local.start_unix(site.local_socket)
        await vendor.start_tcp(port=site.vendor_port)
        world = World(site, site.up, api, local, vendor)
        await world.whole()
        yield world
        await world.whole()


def audit_records(directory: Path) -> list[dict[str, Any]]:
    """All whole records; what is still being written is left out."""
    lines = [
        line
        for path in sorted((directory / "a").glob("audit-*.jsonl"))
        for line in path.read_text().split("\n")[:-1]
    ]
    return [json.loads(line) for line in lines]


def assert_chain_holds(directory: Path) -> None:
    done = subprocess.run(
        command("audit", "verify", str(directory / "a")),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SOON_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the chain holds" in done.stdout


# -- each process in turn ---------------------------------------------------------------------


async def test_without_its_planner_serve_plans_by_itself_and_says_so(world: World) -> None:
    pid = world.up.kill("planner")
    answer = await world.api.ask("conductor")
    assert answer.status_code == 200
    assert answer.headers["x-conductor-engine"] == "default@serve"
    assert (await world.api.status())["planner"] != "up"
    metrics = (await world.api.get("/metrics")).text
    assert 'conductor_plans_total{engine="default",where="serve"' in metrics
    await world.up.again("planner", pid)
    assert world.up.said(r"^planner +ended \(signal 9\)")
    assert '"state":"down","event":"planner_state"' in world.up.log.read_text()
    await world.whole()
    assert (await world.api.status())["planner"] == "up"


async def test_a_frozen_planner_holds_up_nobody_for_long(world: World) -> None:
    pid = world.up.pid("planner")
    os.kill(pid, signal.SIGSTOP)
    try:
        answers = await asyncio.gather(*(world.api.ask("conductor") for _ in range(20)))
        assert {a.headers["x-conductor-engine"] for a in answers} == {"default@serve"}
        assert (await world.api.status())["planner"] == "hung"
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_without_egress_what_is_under_way_fails_aloud_and_the_rest_goes_on(
    world: World,
) -> None:
    port = world.site.api["port"]
    midway = await RawClient.ask(port, "remote-mid", stream=True)
    await midway.until(b"simulated")
    waiting = await RawClient.ask(port, "remote-stall", stream=False)
    await world.api.until(lambda: holds(len(world.vendor.requests) >= 3))
    pid = world.up.kill("egress")
    told = await midway.rest()
    assert b'"error"' in told and b"[DONE]" not in told
    assert await waiting.error() == (502, "upstream_error")

    direct = await world.api.ask("remote-a")
    assert direct.status_code in (502, 503)
    assert int(direct.headers["retry-after"]) >= 1
    assert (await world.api.worker("remote-a"))["reason"] == "egress_down"
    left_out = '"worker":"remote-a","reason":"egress_down","event":"worker_left_out"'
    assert left_out in world.up.log.read_text()
    assert (await world.api.ask("local-a")).status_code == 200
    assert (await world.api.ask("conductor")).status_code == 200, "the local worker could answer"
    assert (await world.api.get("/readyz")).status_code == 200

    await world.up.again("egress", pid)
    await world.api.answers("remote-a")


async def test_without_its_worker_a_request_gets_a_503_that_says_when_to_come_back(
    world: World,
) -> None:
    midway = await RawClient.ask(world.site.api["port"], "local-mid", stream=True)
    await midway.until(b"simulated")
    await world.local.close()
    told = await midway.rest()
    assert b'"error"' in told and b"[DONE]" not in told
    refused = await world.api.ask("local-a")
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "no_local_backend"
    assert (await world.api.worker("local-a"))["state"] == "open"

    world.site.local_socket.unlink()
    await world.local.start_unix(world.site.local_socket)
    await asyncio.sleep(int(refused.headers["retry-after"]))
    assert (await world.api.ask("local-a")).status_code == 200


async def test_serve_killed_under_load_comes_back_and_its_record_is_whole(world: World) -> None:
    """At several moments: before any answer, amid them, at their end."""
    told: set[str] = set()
    for moment in (0, 12, 29):
        clients = [asyncio.create_task(one_request(world, i)) for i in range(30)]
        done: set[asyncio.Task[str | None]] = set()
        while len(done) < moment:
            done, _ = await asyncio.wait(clients, return_when=asyncio.FIRST_COMPLETED)
            done = {client for client in clients if client.done()}
        pid = world.up.kill("serve")
        async with asyncio.timeout(SOON_S):  # nobody is left hanging
            told |= {d for d in await asyncio.gather(*clients) if d is not None}
        await world.up.again("serve", pid)
        await world.api.answers("local-a")
    records = audit_records(world.site.directory)
    decided = {r["decision_id"] for r in records if r["event"] == "decision"}
    assert told and told <= decided, "an answer was given whose decision is not on disk"
    sent = sum(r["event"] == "egress" for r in records)
    assert sent >= len(world.vendor.requests), "something went out that is not on disk"
    assert_chain_holds(world.site.directory)


async def one_request(world: World, number: int) -> str | None:
    """The decision behind a whole answer; None when there was none."""
    model, stream = ("local-a", "remote-a", "conductor")[number % 3], number % 2 == 1
    try:
        client = await RawClient.ask(world.api.port, model, stream=stream)
    except OSError:
        return None
    end = b"data: [DONE]" if stream else b"}}"
    head, _, body = (await client.whole_answer(end)).decode().partition("\r\n\r\n")
    if " 200 OK" not in head or end.decode() not in body:
        return None
    decision = re.search(r"x-conductor-decision: (\w+)", head)
    assert decision is not None
    return decision[1]


async def holds(value: bool) -> bool:
    return value


# -- what only some may know, and signals -----------------------------------------------------


async def test_a_vendor_key_is_in_the_environment_of_egress_alone(world: World) -> None:
    holders = {
        name
        for name in NAMES
        if VENDOR_KEY in psutil.Process(world.up.pid(name)).environ().values()
    }
    assert holders == {"egress"}
    scanners = psutil.Process(world.up.pid("serve")).children()
    assert scanners and all(VENDOR_KEY not in p.environ().values() for p in scanners)


async def test_a_hang_up_does_not_end_serve(world: World) -> None:
    pid = world.up.pid("serve")
    os.kill(pid, signal.SIGHUP)
    assert (await world.api.ask("local-a")).status_code == 200
    assert world.up.pid("serve") == pid
    assert "no_reload" in world.up.log.read_text()


# -- a full disk ------------------------------------------------------------------------------


@pytest.mark.parametrize("left_bytes", [0, 300], ids=["full", "full within a record"])
async def test_a_full_disk_stops_all_requests_and_nothing_goes_out(
    world: World, left_bytes: int
) -> None:
    audit = sorted((world.site.directory / "a").glob("audit-*.jsonl"))[-1]
    pid = world.up.pid("serve")
    sent, asked = len(world.vendor.requests), ("remote-a", "conductor-quality", "local-a")
    limit_file_size(pid, (audit.stat().st_size + left_bytes) if left_bytes else 0)
    try:
        for model in (*asked, *asked):
            answer = await world.api.ask(model)
            if left_bytes and answer.status_code == 200:
                continue  # the last bytes were enough for it
            assert answer.status_code == 503, answer.text
            assert answer.json()["error"]["code"] == "audit_unavailable"
            assert int(answer.headers["retry-after"]) >= 1
        ready = await world.api.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["reasons"] == ["audit log cannot be written"]
        assert len(world.vendor.requests) == sent or left_bytes
        egress = [r for r in audit_records(world.site.directory) if r["event"] == "egress"]
        assert len(egress) >= len(world.vendor.requests)
    finally:
        limit_file_size(pid)

    async def ready_again() -> bool:
        return (await world.api.get("/readyz")).status_code == 200

    await world.api.until(ready_again)  # with no request to help: none may be sent its way
    assert (await world.api.ask("remote-a")).status_code == 200
    assert world.up.pid("serve") == pid
    assert_chain_holds(world.site.directory)


# -- the end ---------------------------------------------------------------------------------


def test_it_stops_on_request_with_exit_code_0_and_leaves_no_process(site: Site) -> None:
    """The last test here: the others need it running."""
    family = site.up.family()
    assert site.up.end() == 0
    assert dead(family, 0.0)
    assert_chain_holds(site.directory)
    # Signed to its very end.
    assert [one["event"] for one in audit_records(site.directory)[-2:]] == ["stop", "checkpoint"]
