"""The demo, as a new user runs it: real processes, a real model, the official client.

Only the smallest model is used, and ports and directories are the test's own.
"""

from __future__ import annotations

import io
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

from conductor.cli.demo import pull_models
from conductor.cli.demoreport import judge, round_lines, show_answers
from conductor.cli.demorequests import IBAN, REQUESTS, Asked, Told
from conductor.config import load
from conductor.errors import StartError
from conductor.simulated.vendor import SimulatedVendor
from conductor.workers.catalogue import CatalogueModel
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


@pytest.mark.parametrize("there", [[SMALLEST], []])
def test_the_demo_goes_on_without_any_model_but_its_first_workers(
    there: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pull(model: CatalogueModel, *_: object) -> None:
        if model.id not in there:
            raise StartError("not to be had")

    monkeypatch.setattr("conductor.workers.fetch.pull", pull)
    monkeypatch.setattr("conductor.workers.fetch.locate", lambda *_: None)
    console = Console(record=True, quiet=True)
    if not there:
        with pytest.raises(StartError, match="not to be had"):
            pull_models(console, SHIPPED)
        return
    pull_models(console, SHIPPED)


def test_it_says_aloud_when_the_configured_engine_planned_nothing() -> None:
    site = load(SHIPPED)
    console = Console(width=132, file=io.StringIO())
    by_rule = {"plan": "a q -", "engine": "default", "look": False}
    show_answers(console, site, [Told(REQUESTS[0], 200, {"rounds": [by_rule]}, "[b]x", 0.0)])
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "The engine 'pocket' planned nothing" in told and "[b]x" in told


def test_a_row_shows_every_round_who_stood_in_and_what_was_kept() -> None:
    rounds = [
        {"plan": "a q -\nb q -", "engine": "pocket", "look": True},
        {"plan": "c q -", "engine": "pocket", "look": True},
        {"plan": "vote 0,1 -", "engine": "pocket", "look": False},
    ]
    steps = [{"step": step, "worker": worker} for step, worker in enumerate("abdv")]
    trace = {"rounds": rounds, "steps": steps, "answer_step": 3}
    lines = ["1 a\n  + b, look", "2 d (for c), look", "3 keep a = b"]
    assert round_lines(trace) == lines
    kept = {**trace, "rounds": [*rounds[:2], {**rounds[2], "plan": ""}], "answer_step": 2}
    assert round_lines(kept)[-1] == "3 keep d"


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
