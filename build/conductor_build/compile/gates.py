"""What no kernel may show in its machine code, on any architecture.

    spills, stack or local memory   none
    registers                       at most what `ceilings.json` beside the kernels says
    loads of weights or keys        all of 128 bits, in what was assembled; the machine code has as
                                    many. Those of activations do not count
    numbers below 2^-126            kept wherever packed weights are multiplied: they are such

A kernel without a ceiling fails as well: whoever adds one says how large it may get.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files

from conductor.errors import StartError
from conductor_build.compile.compiler import Compiled
from conductor_build.compile.machinecode import Figures

CEILINGS = "ceilings.json"


def read_ceilings() -> Mapping[str, int]:
    """Kernel -> most registers of a thread. Raises `StartError`."""
    try:
        found = json.loads((files("conductor_kernels") / CEILINGS).read_text())["registers"]
    except (OSError, ValueError, KeyError, TypeError):
        raise StartError(f"{CEILINGS} cannot be read: install the appliance again") from None
    return {str(name): int(most) for name, most in found.items()}


PACKED = ("int8", "fp8", "int4")


def faults(compiled: Compiled, ceilings: Mapping[str, int]) -> Iterator[str]:
    """In words, everything that is wrong; nothing: it passes."""
    figures = compiled.figures
    if figures.counts and figures.counts.spills:
        yield f"{figures.counts.spills} loads and stores of spilled registers"
    if figures.stack_bytes or figures.local_bytes:
        yield f"{figures.stack_bytes + figures.local_bytes} bytes of local memory a thread"
    if compiled.reads:
        yield from _narrow(figures)
    if figures.flushed and compiled.built.constants.get("KIND") in PACKED:
        yield f"{figures.flushed} sums and products take small packed weights for zero (.ftz)"
    ceiling = ceilings.get(compiled.name)
    if ceiling is None:
        yield f"no ceiling in {CEILINGS} ({figures.registers} registers now)"
    elif figures.registers > ceiling:
        yield f"{figures.registers} registers, {ceiling} are allowed"


def _narrow(figures: Figures) -> Iterator[str]:
    """Of a kernel that reads weights or keys."""
    total, counts = figures.weight_loads, figures.counts
    if not total:
        yield "reads weights or keys, and no load of them is to be found"
    if figures.narrow_loads:
        yield f"{figures.narrow_loads} of {total} loads of weights or keys are not of 128 bits"
    elif counts and counts.wide_loads < total:
        yield f"{counts.wide_loads} loads of 128 bits, {total} of weights or keys were assembled"
