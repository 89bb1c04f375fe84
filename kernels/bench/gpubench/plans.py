"""Part `plan`: whole plans by the runner, from asking to the last token, as the planner asks.

The prefix is in the cache, as after the first request of a day; the question is read, and then the
plan is written to its longest, since a model of random weights would never end it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

import torch

from conductor.planner.lm_runner import RunnerSettings, Wanted
from conductor_kernels.runner.runner import TorchRunner
from gpubench.model import Language, decoder_of, language
from gpubench.parts import Bench, Cell, Row

_ROUNDS = 5
_STEPS = {"cuda": 8, "cpu": 2}
"""Tokens of a launch; on a CPU as many as show that it runs."""


def rows(bench: Bench) -> Iterator[Row]:
    """One a kind of weights and number of plans at once."""
    for kind in bench.sizes.kinds:
        yield from _of_kind(bench, kind)


def _of_kind(bench: Bench, kind: str) -> Iterator[Row]:
    """A function of its own, so that one model is gone before the next is made."""
    sizes, spoken = bench.sizes, language(bench.sizes.shape.vocabulary)
    batches = sizes.batches[:1] if bench.quick else sizes.batches
    settings = RunnerSettings(
        device="cuda" if bench.device.type == "cuda" else "cpu",
        max_running=max(batches),
        cache_tokens=max(batches) * (sizes.prefix + sizes.question + sizes.plan),
        prefill_tokens=4_096,
    )
    decoder = decoder_of(bench, kind, settings.cache_tokens)
    runner = TorchRunner(decoder, settings, _STEPS[bench.device.type])
    try:
        for batch in batches:
            yield {"kind": kind, "batch": batch, **_of(bench, runner, spoken, batch)}
    finally:
        runner.close()


def _of(bench: Bench, runner: TorchRunner, spoken: Language, batch: int) -> dict[str, Cell]:
    """Medians over some rounds, after one that compiles, captures and fills the cache."""
    asks = [_wanted(bench, spoken, number) for number in range(batch)]
    written = asyncio.run(_all(runner, asks))
    tokens = min(count for _, _, count in written)
    told: dict[str, Cell] = {
        "prefix": bench.sizes.prefix,
        "question": bench.sizes.question,
        "tokens": tokens,
    }
    if not bench.clock.measures:
        return {**told, "plan s": None, "first token ms": None, "tokens/s": None}
    rounds = [asyncio.run(_all(runner, asks)) for _ in range(_ROUNDS)]
    whole = statistics.median(max(end for _, end, _ in one) for one in rounds)
    first = statistics.median(max(begin for begin, _, _ in one) for one in rounds)
    return {
        **told,
        "plan s": round(whole, 4),
        "first token ms": round(first * 1e3, 2),
        "tokens/s": round(batch * tokens / whole, 1),
    }


def _wanted(bench: Bench, spoken: Language, number: int) -> Wanted:
    random = torch.Generator().manual_seed(number)
    prefix = tuple(33 + at * 7 % 90 for at in range(bench.sizes.prefix))
    rest = torch.randint(33, 123, (bench.sizes.question,), generator=random)
    return Wanted(prefix, tuple(rest.tolist()), spoken.automaton, max_tokens=bench.sizes.plan)


async def _all(runner: TorchRunner, asks: list[Wanted]) -> list[tuple[float, float, int]]:
    """Of each: seconds to its first token and to its last, and how many there were."""
    return await asyncio.gather(*(_one(runner, ask) for ask in asks))


async def _one(runner: TorchRunner, ask: Wanted) -> tuple[float, float, int]:
    begun, first, count = time.perf_counter(), 0.0, 0
    async for _ in runner.write(ask):
        if not count:
            first = time.perf_counter() - begun
        count += 1
    return first, time.perf_counter() - begun, count
