"""What scanning costs: throughput, the price of a small request, and the longest stall of the loop.

    PYTHONPATH=appliance python tests/bench/bench_scan.py

The stall is the longest gap that a task sees which only sleeps a millisecond, over and over.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
import resource
import time
import warnings

import orjson

from conductor.detect.detectors import rule_set
from conductor.detect.scan import Scanner, scan_value

SENTENCE = (
    "the request is read once and every worker that may see it is named before a plan is drawn "
    "up by the conductor which then gives each step to one of them in turn and waits"
)


def prose(size: int) -> str:
    """Plain sentences of about `size` characters, the same each time."""
    draw, words = random.Random(7), SENTENCE.split()
    lines = []
    while size > 0:
        line = " ".join(draw.choices(words, k=14)).capitalize() + ".\n"
        lines.append(line)
        size -= len(line)
    return "".join(lines)


def business(size: int) -> str:
    """The same with what letters are full of: dates, amounts, order numbers, hyphens, quotes."""
    draw, lines = random.Random(8), []
    for line in prose(size).splitlines():
        day, number = draw.randint(1, 28), draw.randint(10**7, 10**8)
        note = f' On {day} March 2024 (order {number}) it was 1,{day}0.50 "in full", re-sent.'
        lines.append(line + note if draw.random() < 0.2 else line)
    return "\n".join(lines)[:size]


def chat(text: str) -> dict[str, object]:
    """A request with one question."""
    return {
        "model": "conductor",
        "messages": [
            {"role": "system", "content": "You answer in one sentence."},
            {"role": "user", "content": text},
        ],
        "temperature": 0.2,
    }


def plain_re(text: str) -> tuple[float, int]:
    """Seconds that Python's `re` takes to look for every gate in turn, once, and of how many.

    That is the first pass of one view of six, without any judging.
    """
    data, gates = text.encode(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for gate in rule_set().gates:
            try:
                gates.append(re.compile(gate.encode("latin-1")))
            except re.error:  # flags in the middle, which RE2 takes
                continue
    start = time.perf_counter()
    for gate in gates:
        gate.search(data)
    return time.perf_counter() - start, len(gates)


def seconds(text: str, repeat: int) -> float:
    """Seconds that one scan of `text` takes, the best of `repeat`."""
    body = chat(text)
    best = float("inf")
    for _ in range(repeat):
        start = time.thread_time()  # of this core, whatever else the machine does
        scan_value(body)
        best = min(best, time.thread_time() - start)
    return best


async def stall(scanner: Scanner, text: str, *, with_text: bool) -> tuple[float, float, str]:
    """Longest gap of a ticking task and the time of the scan, in seconds; and what it said."""
    body = chat(text)
    encoded = orjson.dumps(body) if with_text else None
    gaps: list[float] = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.05)
    gaps.clear()
    start = time.perf_counter()
    scan = await scanner.scan(body, encoded)
    took = time.perf_counter() - start
    await asyncio.sleep(0.05)
    ticker.cancel()
    return max(gaps), took, ",".join(scan.unscanned) or "read"


async def stalls() -> None:
    scanner = Scanner(processes=1, timeout_s=60.0)
    start = time.perf_counter()
    await scanner.start()
    print(f"start of one process      {time.perf_counter() - start:8.2f} s")
    for mebibytes in (1, 31):
        for with_text in (False, True):
            text = prose(mebibytes << 20) + str(with_text)  # no two alike: scans are cached
            gap, took, said = await stall(scanner, text, with_text=with_text)
            given = "text given" if with_text else "value only"
            label = f"{mebibytes:3d} MiB {given}"
            print(f"{label:25s} stall {gap * 1e3:6.1f} ms, scan {took:6.2f} s, {said}")
    await scanner.close()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"peak memory of a process  {peak >> 10:8d} MiB")


def main() -> None:
    scan_value(chat(prose(100_000)))
    print(f"request of 2 kB           {seconds(prose(2_000), 300) * 1e6:8.0f} us")
    for name, text in {
        "prose": prose(1 << 20),
        "prose with numbers": business(1 << 20),
        "accented prose": prose(1 << 20).replace("e ", "é "),
        "base64 of random bytes": base64.b64encode(random.Random(1).randbytes(768 << 10)).decode(),
        "hexadecimal": random.Random(1).randbytes(512 << 10).hex(),
        "digits": "4111" * (256 << 10),
    }.items():
        print(f"{name:25s} {len(text) / 1e6 / seconds(text, 5):8.1f} MB/s")
    took, gates = plain_re(prose(100_000))
    print(f"{'re, ' + str(gates) + ' gates in turn':25s} {0.1 / took:8.1f} MB/s, one view")
    asyncio.run(stalls())


if __name__ == "__main__":
    main()
