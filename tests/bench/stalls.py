"""How long other requests wait while `serve` takes in, scans and sends on a long body; and what
making an audit record durable costs on this disk."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import box as names
from bench.bench_scan import prose
from bench.box import Box
from bench.cases import body
from bench.load import Job

TICK_S = 0.001
SETTLE_S = 0.3
COMMIT_BYTES = 1200
"""About what a decision and its outcome take in the log."""


@dataclass(frozen=True)
class Stall:
    """Times in milliseconds; `quiet` is the longest tick when nothing else happens."""

    mebibytes: int
    median_tick: float
    longest_tick: float
    quiet: float
    answered_in: float


def stall(box: Box, mebibytes: int) -> Stall:
    """Ask for `/healthz` again and again while one body goes through, to the worker and back."""
    ticks = Job([box.health()], 1, 1_000_000, limit_s=0.5, pause_s=TICK_S)
    quiet = max(box.ticker.run(ticks).first_byte_ms[0])
    text = prose((mebibytes << 20) * 49 // 50)  # line breaks take two bytes in JSON
    job = Job([box.through(body(names.TCP, text))], 1, 1)
    lasting = Job(ticks.targets, 1, ticks.rounds, limit_s=1 + mebibytes / 8, pause_s=TICK_S)
    box.ticker.begin(lasting)
    time.sleep(SETTLE_S)
    answered_in = box.loader.run(job).first_byte_ms[0][0]
    during = box.ticker.result().first_byte_ms[0]
    return Stall(mebibytes, median(during), max(during), quiet, answered_in)


def commit_ms(directory: Path, number: int = 200) -> list[float]:
    """Times to append and `fdatasync` a record's bytes, as the audit log does."""
    path = directory / "probe"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    taken = []
    try:
        for _ in range(number):
            start = time.perf_counter()
            os.write(descriptor, b"x" * COMMIT_BYTES)
            os.fdatasync(descriptor)
            taken.append(1000 * (time.perf_counter() - start))
    finally:
        os.close(descriptor)
        path.unlink()
    return taken
