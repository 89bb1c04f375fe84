"""What the sentence encoder costs: time of one text by its length, idle CPU, and memory.

    PYTHONPATH=appliance python tests/bench/bench_encode.py [--threads N] [--models DIR]

The texts differ, so that nothing is measured that a cache could give. Also told: whether several
texts in one padded batch would be quicker than one after the other.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from pathlib import Path
from statistics import quantiles

import numpy as np

from conductor.planner.encoder import Encoder
from conductor.planner.encoderfiles import load_encoder
from conductor.planner.lexical import lexical

SENTENCE = (
    "how many apples does the farmer sell when each of three baskets holds twelve and every third "
    "one is left at home for his neighbour who pays two coins more than last year"
)
LENGTHS = (16, 60, 128, 300, 40_000)
"""Tokens of a text, its two marks included."""
BATCH = 8


def text(tokens: int, draw: random.Random) -> str:
    """A text of so many tokens: every word is one."""
    return " ".join(draw.choices(SENTENCE.split(), k=tokens - 2))


def times_ms(encoder: Encoder, tokens: int, repeat: int) -> tuple[list[float], float]:
    """Milliseconds of each of `repeat` texts, for the vector and the lexical features; and the CPU
    time of one, which other work on the machine hardly changes."""
    draw = random.Random(tokens)
    questions = [text(tokens, draw) for _ in range(repeat)]
    for question in questions[:3]:  # the first ones grow the arena
        encoder.embed(question)
    taken, before = [], time.process_time()
    for question in questions:
        start = time.perf_counter()
        encoder.embed(question)
        lexical(question)
        taken.append((time.perf_counter() - start) * 1e3)
    return taken, (time.process_time() - before) * 1e3 / repeat


def batched_ms(encoder: Encoder, tokens: int, repeat: int) -> float:
    """Milliseconds a text when `BATCH` are run as one, the best of `repeat`."""
    ids = np.array([encoder.tokens(text(tokens, random.Random(i))) for i in range(BATCH)])
    feed = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        encoder._session.run(None, feed)
        best = min(best, (time.perf_counter() - start) * 1e3 / BATCH)
    return best


def idle_cpu_ms(seconds: float) -> float:
    """Milliseconds of CPU that this process takes while it does nothing."""
    start = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - start) * 1e3


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", type=Path, default=Path("var/models"))
    parser.add_argument("--repeat", type=int, default=100)
    arguments = parser.parse_args()
    before = resident_mib()
    start = time.perf_counter()
    encoder = load_encoder(arguments.models, threads=arguments.threads)
    print(f"load, {arguments.threads} threads     {time.perf_counter() - start:8.2f} s")
    for tokens in LENGTHS:
        taken, cpu = times_ms(encoder, tokens, arguments.repeat)
        cuts = quantiles(taken, n=100, method="inclusive")
        wall = f"p50 {cuts[49]:6.1f} ms, p99 {cuts[98]:6.1f} ms"
        print(f"{tokens:6d} tokens       {wall}, CPU {cpu:6.1f} ms")
    print(f"60 tokens, batch of {BATCH} {batched_ms(encoder, 60, 20):7.1f} ms a text, at best")
    print(f"60 tokens, alone      {min(times_ms(encoder, 60, 40)[0]):7.1f} ms a text, at best")
    print(f"idle                  {idle_cpu_ms(2.0):7.1f} ms of CPU in 2 s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    now = resident_mib()
    print(f"memory                {now:7.0f} MiB, {now - before:.0f} more than before loading;")
    print(f"                      {peak:7.0f} MiB at most, while loading")


if __name__ == "__main__":
    main()
