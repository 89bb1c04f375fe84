"""What a plan of the pocket conductor costs, asked over the planner process's socket; its memory.

    PYTHONPATH=appliance:tests python tests/bench/bench_plan.py [--bundle DIR --key FILE]

Without `--bundle` the shipped one plans. Every question is another one, so nothing is measured that
is remembered; a further round comes after its first one, as it does in `serve`. Eleven candidates.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import quantiles

from bench.bench_encode import text
from conductor.core import Candidate, Card, Heard, PlanRequest, Price
from conductor.planner.client import PlannerClient
from conductor.planner.default import DefaultEngine
from support.planner import planner_process, socket_folder

LENGTHS = (60, 300)
"""Tokens of a question, its two marks included."""
WARM = 5


def pool(size: int = 11) -> tuple[Candidate, ...]:
    """Workers of all kinds, from free and weak to dear and strong."""
    return tuple(
        Candidate(
            Card({"general": 0.4 + 0.05 * i, "math": 0.3 + 0.06 * i}, 50.0, "declared"),
            Price(0.1 * i, 0.05 * 1.7**i),
            i < size // 2,
            32_768,
        )
        for i in range(size)
    )


def heard() -> tuple[Heard, ...]:
    """Two answers that differ, with an explanation that has to be read."""
    said = ("He first adds the twelve to the three, and then takes one away. ", "14"), (
        "Every basket holds twelve, and there are three of them. ", "36"
    )  # fmt: skip
    texts = [f"{because * 8}\nThe answer is {answer}." for because, answer in said]
    return tuple(Heard(step, step, told, 120) for step, told in enumerate(texts))


async def times_ms(
    client: PlannerClient, tokens: int, repeat: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of first and further rounds, one after the other."""
    draw = random.Random(tokens)
    first, further = [], []
    for number in range(WARM + repeat):
        question = text(tokens, draw)
        asked = PlanRequest(f"b-{number}", question, pool(), tokens, rounds_left=2)
        first.append(await _timed_ms(client, asked))
        further.append(await _timed_ms(client, replace(asked, heard=heard(), rounds_left=1)))
    return first[WARM:], further[WARM:]


async def _timed_ms(client: PlannerClient, asked: PlanRequest) -> float:
    start = time.perf_counter()
    planned = await client.plan(asked)
    taken = (time.perf_counter() - start) * 1e3
    if planned.engine != "pocket":
        raise SystemExit(f"the pocket conductor did not plan: {planned.why}")
    return taken


@asynccontextmanager
async def asking(settings: Sequence[str]) -> AsyncIterator[tuple[PlannerClient, int]]:
    """A client of a fresh planner process, and that one's pid."""
    with socket_folder() as folder:
        socket = folder / "planner.sock"
        async with planner_process(socket, *settings) as pid:
            client = PlannerClient(socket, 30.0, DefaultEngine())
            await client.start()
            try:
                yield client, pid
            finally:
                await client.close()


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident now, and at most so far."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    facts = {name: value.split()[0] for name, value in (line.split(":", 1) for line in lines)
             if name in ("VmRSS", "VmHWM")}  # fmt: skip
    return int(facts["VmRSS"]) / 1024, int(facts["VmHWM"]) / 1024


def cpu_ms(pid: int) -> float:
    """CPU time that the process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 10.0


def show(name: str, taken: list[float]) -> None:
    cuts = quantiles(taken, n=100, method="inclusive")
    print(f"{name:28s} p50 {cuts[49]:6.1f} ms   p99 {cuts[98]:6.1f} ms")


async def bench(settings: Sequence[str], repeat: int) -> None:
    async with asking(settings) as (client, pid):
        print(f"memory at start              {memory_mib(pid)[0]:6.0f} MiB")
        for tokens in LENGTHS:
            before = cpu_ms(pid)
            first, further = await times_ms(client, tokens, repeat)
            cpu = (cpu_ms(pid) - before) / (WARM + repeat)
            show(f"{tokens} tokens, first round", first)
            show(f"{tokens} tokens, further round", further)
            print(f"{tokens} tokens, CPU of both      {cpu:6.1f} ms")
        now, most = memory_mib(pid)
        print(f"memory after all of it       {now:6.0f} MiB, at most {most:.0f}")
    print(
        f"(this client's own CPU       {resource.getrusage(resource.RUSAGE_SELF).ru_utime:6.1f} s)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--models", type=Path, default=Path("var/models"))
    parser.add_argument("--repeat", type=int, default=200)
    arguments = parser.parse_args()
    paths = [arguments.bundle or "", arguments.key or "", arguments.models.absolute()]
    asyncio.run(bench(["pocket", *map(str, paths)], arguments.repeat))


if __name__ == "__main__":
    main()
