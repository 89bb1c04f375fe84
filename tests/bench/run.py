"""`make bench`: what the appliance costs, beside a direct call to the same upstream.

    PYTHONPATH=tests python -m bench.run [--rounds N] [--only WORD] [--json FILE]

Real processes: `conductor serve`, planner, egress, a fake upstream, a load generator. Nothing here
passes or fails but a request that gets no answer; docs/performance.md tells what is aimed at.
What scanning alone costs is told by `bench_scan.py`.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from bench.box import DELAY_MS, Box, box
from bench.cases import CASES, Case, Round, measure, warm
from bench.stalls import Stall, commit_ms, stall
from conductor.process.openfiles import lift_limit

LONG_MIB = (1, 32)

COLUMNS: dict[str, Callable[[Round], float | None]] = {
    "CPU, 1": lambda r: r.cpu_alone,
    "CPU, 16": lambda r: r.cpu_together,
    "req/s": lambda r: r.per_s,
    "direct req/s": lambda r: r.direct_per_s,
    "direct": lambda r: r.direct_alone,
    "added": lambda r: r.added_alone,
    "added p95": lambda r: r.added_alone_p95,
    "added, 16": lambda r: r.added_paced,
}
LEGEND = f"""\
Medians of rounds; times in ms. CPU: of serve, a request, with 1 and with 16 connections that never
pause; req/s: those 16. direct, added: to the first byte of a body, 1 connection that calls the
upstream and the appliance in turn; added, 16: the same with 16, where the upstream takes
{DELAY_MS} ms. CPU of others: a request, with 16 connections."""


def main() -> None:
    arguments = _arguments()
    lift_limit()
    console = Console(width=None if sys.stdout.isatty() else 120)
    base = Path("var").absolute()  # the audit log's disk is measured: /tmp may be none
    base.mkdir(exist_ok=True)
    short = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-"))  # sockets have short names
    audit = Path(tempfile.mkdtemp(dir=base, prefix="bench-"))
    try:
        result = _run(arguments, console, short, audit)
    finally:
        shutil.rmtree(short)
        shutil.rmtree(audit)
    if arguments.json is not None:
        arguments.json.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))


def _run(arguments: argparse.Namespace, console: Console, short: Path, audit: Path) -> Any:
    machine = _machine()
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    commits = commit_ms(audit)
    cases = [case for case in CASES if arguments.only in case.name]
    with box(short, audit) as running:
        rounds = _rounds(running, cases, arguments.rounds, console)
        console.print(_table(rounds))
        stalls = [] if arguments.only else [stall(running, size) for size in LONG_MIB]
        memory = {name: process.rss_mib for name, process in running.processes.items()}
        memory["scanner"] = running.processes["serve"].children_rss_mib
    _tell(console, commits, stalls, memory)
    return {
        "machine": machine,
        "cases": {name: [asdict(one) for one in measured] for name, measured in rounds.items()},
        "stalls": [asdict(one) for one in stalls],
        "rss_mib": memory,
        "commit_ms": {"median": median(commits), "p95": quantiles(commits, n=20)[-1]},
    }


def _rounds(
    running: Box, cases: Sequence[Case], number: int, console: Console
) -> dict[str, list[Round]]:
    """All cases, then all again: a slow moment of the machine hits no case alone."""
    for case in cases:
        warm(running, case)
    rounds: dict[str, list[Round]] = {case.name: [] for case in cases}
    for place in range(number):
        console.print(f"round {place + 1} of {number}", highlight=False)
        for case in cases:
            rounds[case.name].append(measure(running, case))
    return rounds


def _table(rounds: dict[str, list[Round]]) -> Table:
    table = Table(caption=LEGEND, caption_justify="left")
    table.add_column("case", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right")
    table.add_column("CPU of others")
    for name, measured in rounds.items():
        cells = [_median([value(one) for one in measured]) for value in COLUMNS.values()]
        costs = [
            f"{key} {_median([one.cpu_others.get(key, 0.0) for one in measured])}"
            for key in sorted({key for one in measured for key in one.cpu_others})
        ]
        table.add_row(name, *cells, ", ".join(costs))
    return table


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    middle = median(known)
    return f"{middle:.0f}" if middle >= 100 else f"{middle:.2f}"


def _tell(
    console: Console, commits: list[float], stalls: list[Stall], memory: dict[str, float]
) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False)

    for one in stalls:
        say(
            f"a body of {one.mebibytes} MiB, answered in {one.answered_in:.0f} ms: /healthz takes "
            f"{one.median_tick:.2f} ms at the median, {one.longest_tick:.1f} ms at the longest "
            f"({one.quiet:.1f} ms when all is quiet)"
        )
    say("memory, MiB: " + ", ".join(f"{name} {size:.0f}" for name, size in memory.items()))
    say(
        f"audit: write and fdatasync take {median(commits):.2f} ms on this disk at the median, "
        f"{quantiles(commits, n=20)[-1]:.2f} ms at the 95th percentile"
    )


def _machine() -> dict[str, str]:
    import psutil

    return {
        "cores": str(psutil.cpu_count()),
        "Python": platform.python_version(),
        "kernel": platform.release(),
        "processor": _processor(),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of every case  [default: 5]")
    parser.add_argument("--only", default="", help="only cases whose name has this word in it")
    parser.add_argument("--json", type=Path, help="write all that was measured to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
