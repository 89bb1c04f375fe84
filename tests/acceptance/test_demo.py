"""The demo, as a new user runs it: real processes, a real model, the official client.

Only the smallest model is used, and ports and directories are the test's own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from conductor.cli.demoreport import judge
from conductor.cli.demorequests import IBAN, REQUESTS, Asked, Told
from conductor.simulated.vendor import SimulatedVendor
from support.appliance import short_directory
from support.clients import http_client

pytestmark = pytest.mark.timeout(300)
"""It starts whole processes, which a busy machine may give little time."""

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "configs" / "demo"
MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
SMALLEST = "smollm2-135m"


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def own_site(directory: Path) -> Path:
    """The shipped demo's configuration, moved to `directory` and to free ports."""
    trees: dict[str, Any] = {
        name: yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
        for name in ("appliance", "workers", "policy")
    }
    api, admin, vendor = free_ports(3)
    trees["appliance"]["paths"] |= {"root": str(directory), "models": str(MODELS)}
    trees["appliance"]["api"] |= {"port": api, "admin_port": admin}
    pool = trees["workers"]["workers"]
    trees["workers"]["workers"] = [w for w in pool if w.get("embedded", SMALLEST) == SMALLEST]
    for worker in trees["workers"]["workers"]:
        if "remote" in worker:
            worker["remote"]["base_url"] = f"http://127.0.0.1:{vendor}/v1"
    site = directory / "configs"
    site.mkdir()
    for name, tree in trees.items():
        (site / f"{name}.yaml").write_text(json.dumps(tree))
    return site


def answered(asked: Asked, status: int | None = None) -> Told:
    return Told(asked, asked.expect if status is None else status, {}, "", 0.0)


async def judged(told: list[Told], sent: str) -> int:
    """What the demo ends with when the vendor was sent one request with the text `sent`."""
    async with SimulatedVendor() as vendor, http_client() as http:
        port = await vendor.start_tcp()
        if sent:
            body = {"model": "ok", "messages": [{"role": "user", "content": sent}]}
            await http.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body)
        return judge(Console(quiet=True), told, vendor)


async def test_the_demo_fails_on_a_leak_on_an_odd_answer_and_when_it_shows_nothing() -> None:
    told = [answered(asked) for asked in REQUESTS]
    assert await judged(told, "Name a prime number.") == 0
    assert await judged(told, f"Pay to {IBAN}.") == 1
    assert await judged([*told, answered(REQUESTS[0], 503)], "Name a prime number.") == 1
    assert await judged(told, "") == 1


@pytest.mark.model
def test_the_demo_ends_well_and_nothing_sensitive_reached_the_vendor() -> None:
    with short_directory() as directory:
        command = [sys.executable, "-m", "conductor", "demo", "--config", str(own_site(directory))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=directory)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "sensitive strings among those bytes: 0" in done.stdout
        assert "all as it should be" in done.stdout
        audit = directory / "var" / "demo" / "audit"
        verify = [sys.executable, "-m", "conductor", "audit", "verify", str(audit), "--json"]
        told = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(told.stdout)["ok"] is True
