"""Plans written on the device beside the CPU's, token by token.

Both hold the same model in float32, so that no rounding decides between tokens; the device writes
by its kernels, several tokens a launch, the CPU by the reference ops and the host's automaton.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from conductor_build.verify.finding import NO_GPU, Finding, Machine, absent, failed, passed
from conductor_build.verify.kernels import NO_TRITON

if TYPE_CHECKING:
    import torch

    from conductor.planner.lm_runner import Token, Wanted
    from conductor_kernels.runner.decoder import Decoder

_PLANS = 4
_TOKENS = 48
_STEPS = 4
"""Tokens of a launch of the device."""
_CLOSE = 1e-3
"""Between log-probabilities: sums of a few hundred numbers in another order."""


def plan(machine: Machine) -> Iterator[Finding]:
    """Greedy and drawn plans of a small random model."""
    if machine.device is None:
        yield absent("plan", NO_GPU)
        return
    if machine.lacks_compiler:
        yield absent("plan", NO_TRITON)
        return
    import torch

    from conductor_build.verify.smallmodel import asks, decoder

    ours = written(decoder(machine.device, machine.seed), asks(_PLANS, _TOKENS), _STEPS)
    cpu = torch.device("cpu")
    theirs = written(decoder(cpu, machine.seed), asks(_PLANS, _TOKENS), 0)
    yield compared(ours, theirs)


def written(decoder: Decoder, wanted: list[Wanted], steps: int) -> list[list[Token]]:
    """All at once, by a runner that is closed again."""
    from conductor.planner.lm_runner import RunnerSettings
    from conductor_kernels.runner.runner import TorchRunner

    device: torch.device = decoder.device
    settings = RunnerSettings(device="cuda" if device.type == "cuda" else "cpu", threads=1)
    runner = TorchRunner(decoder, settings, steps)

    async def one(ask: Wanted) -> list[Token]:
        return [token async for token in runner.write(ask)]

    async def every() -> list[list[Token]]:
        return await asyncio.gather(*map(one, wanted))

    try:
        return asyncio.run(every())
    finally:
        runner.close()


def compared(ours: list[list[Token]], theirs: list[list[Token]]) -> Finding:
    """What the first difference is, if there is one."""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        for at, (one, two) in enumerate(zip(mine, other, strict=False)):
            if (one.id, one.forced) != (two.id, two.forced):
                return failed("plan", f"plan {number} differs from the CPU's at token {at}")
            if abs(one.log_prob - two.log_prob) > _CLOSE:
                return failed("plan", f"plan {number}: another log-probability at token {at}")
        if len(mine) != len(other):
            return failed("plan", f"plan {number} has {len(mine)} tokens, the CPU's {len(other)}")
    count = sum(map(len, ours))
    return passed("plan", f"{len(ours)} plans, {count} tokens, as the CPU writes them")
