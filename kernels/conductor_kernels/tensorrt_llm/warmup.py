"""Plans written for nobody, once on the GPU that will serve: kernels are compiled, tactics timed
and graphs recorded before the first question.

    python -m conductor_kernels.tensorrt_llm.warmup BUNDLE --key site.pub

A graph is recorded for every batch up to 16, so that many plans are written at once, then fewer.
What lasts of it is Triton's cache (`TRITON_CACHE_DIR`); the rest is done again at each start. The
bundle is checked as the planner checks it, for its machine code is run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from conductor.errors import ConductorError
from conductor.plan import tablefile
from conductor.plan.automaton import Automaton, Tables
from conductor.plan.validate import PlanPool
from conductor.planner.bundle import Runtime
from conductor.planner.bundlefolder import laid_out
from conductor.planner.kinds import LM
from conductor.planner.lm_parts import FOLDER, TABLES
from conductor.planner.lm_runner import Runner, RunnerSettings, Wanted
from conductor.planner.trust import resolve
from conductor_kernels.tensorrt_llm.arguments import BLOCK_TOKENS, MOST_AT_ONCE
from conductor_kernels.tensorrt_llm.runner import load

_TOKENS = 24
"""Of each plan: choices and forced ones are among them."""
_PROMPT = 8 * BLOCK_TOKENS


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives its exit code."""
    parser = argparse.ArgumentParser(description="Write plans for nobody, once on a GPU.")
    parser.add_argument("bundle", type=Path, help="the bundle's folder")
    parser.add_argument(
        "--key", type=Path, action="append", default=[], help="public key of who may have signed it"
    )
    options = parser.parse_args(arguments)
    try:
        warm_up(options.bundle, options.key)
    except ConductorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def warm_up(
    bundle: Path,
    trusted_keys: Sequence[Path],
    settings: RunnerSettings | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Write plans with a bundle's model, in batches of falling size.

    Raises `BundleError` and `ConfigError` for one that cannot be trusted, `StartError` when the
    model does not start, and what its runner raises.
    """
    chosen = settings or RunnerSettings(max_running=MOST_AT_ONCE)
    opened = resolve(bundle, trusted_keys, Runtime(kind=LM.name))
    tables = tablefile.unpack(opened.read(TABLES))
    with laid_out(opened) as folder:
        runner = load(folder / FOLDER, chosen)
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


if __name__ == "__main__":
    sys.exit(main())
