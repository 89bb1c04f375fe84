"""What scanning costs: throughput, the price of a small request, and the longest stall of the loop.

    PYTHONPATH=appliance python tests/bench/bench_scan.py

The stall is the longest gap that a task sees which only sleeps a millisecond, over and over.
"""

from __future__ import annotations

import asyncio
import base64
import random
import resource
import time

import orjson

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


def seconds(text: str, repeat: int) -> float:
    """Seconds that one scan of `text` takes, the best of `repeat`."""
    body = chat(text)
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        scan_value(body)
        best = min(best, time.perf_counter() - start)
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
        "accented prose": prose(1 << 20).replace("e ", "é "),
        "base64 of random bytes": base64.b64encode(random.Random(1).randbytes(768 << 10)).decode(),
        "hexadecimal": random.Random(1).randbytes(512 << 10).hex(),
        "digits": "4111" * (256 << 10),
    }.items():
        print(f"{name:25s} {len(text) / 1e6 / seconds(text, 3):8.1f} MB/s")
    asyncio.run(stalls())


if __name__ == "__main__":
    main()
