"""Plans written for nobody, once on the GPU that will serve: kernels are compiled, tactics timed
and graphs recorded before the first question.

A graph is recorded for every batch up to 16, so that many plans are written at once, then fewer.
What lasts of it is Triton's cache (`TRITON_CACHE_DIR`); the rest is done again at each start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from conductor.errors import StartError
from conductor.plan import tablefile
from conductor.plan.automaton import Automaton, Tables
from conductor.plan.validate import PlanPool
from conductor.planner.lm_runner import Runner, RunnerSettings, Wanted
from conductor_kernels.tensorrt_llm.arguments import BLOCK_TOKENS, MOST_AT_ONCE
from conductor_kernels.tensorrt_llm.runner import load

_TOKENS = 24
"""Of each plan: choices and forced ones are among them."""
_PROMPT = 8 * BLOCK_TOKENS


def warm_up(
    folder: Path, settings: RunnerSettings | None = None, say: Callable[[str], None] = print
) -> None:
    """Write plans with a bundle's model folder `lm`, in batches of falling size.

    Raises `StartError` when the model does not start, and what its runner raises.
    """
    chosen = settings or RunnerSettings(max_running=MOST_AT_ONCE)
    tables = _tables(folder.parent / "plan" / "tables.bin")
    runner = load(folder, chosen)
    try:
        asyncio.run(_write(runner, tables, chosen.max_running, say))
    finally:
        runner.close()


async def _write(runner: Runner, tables: Tables, most: int, say: Callable[[str], None]) -> None:
    size = most
    while size:
        begun = time.monotonic()
        plans = (_plan(runner, tables, size, number) for number in range(size))
        tokens = sum(await asyncio.gather(*plans))
        say(f"{size:3} at once: {tokens} tokens in {time.monotonic() - begun:.2f} s")
        size //= 2


async def _plan(runner: Runner, tables: Tables, size: int, number: int) -> int:
    """How many tokens one plan took. Prompts share their front, as real ones do."""
    rest = (size % runner.vocabulary, number % runner.vocabulary)
    one = Wanted((1,) * _PROMPT, rest, Automaton(tables, PlanPool(4)), _TOKENS)
    count = 0
    async for _ in runner.write(one):
        count += 1
    return count


def _tables(path: Path) -> Tables:
    try:
        return tablefile.unpack(path.read_bytes())
    except OSError:
        raise StartError(
            "plan/tables.bin is not beside the model folder: run this inside a bundle"
        ) from None
