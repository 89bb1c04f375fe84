"""The benchmark measures what it says: whole answers, no two requests alike, nothing failed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from bench import cases
from bench.load import Job, Result, Target, run
from conductor.simulated.vendor import SimulatedVendor
from support.configs import KEY

pytestmark = pytest.mark.timeout(300)
"""It starts whole processes, which a busy machine may give little time."""


async def load(
    vendor: SimulatedVendor, models: list[str], *, connections: int = 3, stream: bool = False
) -> Result:
    """Four rounds to a vendor on a port, a target for each model."""
    target = Target(f"127.0.0.1:{await vendor.start_tcp()}", "unused")
    bodies = [json.dumps(cases.body(model, "What?", stream=stream)) for model in models]
    requests = [
        (
            f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        for body in bodies
    ]
    async with asyncio.timeout(100):
        return await run(Job([target] * len(models), connections, 4), requests, count())


@pytest.mark.parametrize("stream", [False, True])
async def test_every_answer_is_read_to_its_end_and_counted_for_its_target(stream: bool) -> None:
    async with SimulatedVendor() as vendor:
        result = await load(vendor, ["ok", "utf8-splits"], stream=stream)
        assert [len(taken) for taken in result.first_byte_ms] == [12, 12]
        assert result.answers == 24 == len(vendor.requests)
        assert all(request.answered and not request.aborted for request in vendor.requests)
        assert vendor.open_connections == 6


async def test_no_two_requests_are_alike_since_scans_are_cached() -> None:
    async with SimulatedVendor() as vendor:
        await load(vendor, ["ok", "ok"])
        bodies = {request.body for request in vendor.requests}
        assert len(bodies) == 24
        assert len({len(body) for body in bodies}) == 1


async def test_the_wait_for_the_first_byte_of_a_body_is_what_is_measured() -> None:
    async with SimulatedVendor() as vendor:
        result = await load(vendor, ["slow-first-byte-50"], connections=1)
        assert all(taken > 45 for taken in result.first_byte_ms[0])


@pytest.mark.parametrize("model", ["status-503", "cut-before-head", "cut-before-body"])
async def test_an_answer_that_fails_ends_the_measurement(model: str) -> None:
    async with SimulatedVendor() as vendor:
        with pytest.raises(ConnectionError):
            await load(vendor, ["ok", model])


def test_the_benchmark_runs_and_tells_all_it_measured(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", "--rounds", "1", "--only", "TCP", "--json", report],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{root}/tests:{root}/appliance"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_bytes())
    (measured,) = told["cases"]["worker by id, TCP"]
    assert measured["cpu_together"] > 0
    assert measured["direct_per_s"] > measured["per_s"] > 0
    assert measured["added_alone"] > 0
    assert set(told["rss_mib"]) == {"upstream", "planner", "egress", "serve", "scanner"}
    assert KEY not in done.stdout
    assert list((tmp_path / "var").iterdir()) == []
