"""What no kernel may show in its machine code, on any architecture.

    spills, stack or local memory   none
    registers                       at most what `ceilings.json` beside the kernels says
    128-bit loads                   at least one, in a kernel that reads weights or keys

A kernel without a ceiling fails as well: whoever adds one says how large it may get.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files

from conductor.errors import StartError
from conductor_build.compile.compiler import Compiled

CEILINGS = "ceilings.json"


def read_ceilings() -> Mapping[str, int]:
    """Kernel -> most registers of a thread. Raises `StartError`."""
    try:
        found = json.loads((files("conductor_kernels") / CEILINGS).read_text())["registers"]
    except (OSError, ValueError, KeyError, TypeError):
        raise StartError(f"{CEILINGS} cannot be read: install the appliance again") from None
    return {str(name): int(most) for name, most in found.items()}


def faults(compiled: Compiled, ceilings: Mapping[str, int]) -> Iterator[str]:
    """In words, everything that is wrong; nothing: it passes."""
    figures = compiled.figures
    if figures.counts and figures.counts.spills:
        yield f"{figures.counts.spills} loads and stores of spilled registers"
    if figures.stack_bytes or figures.local_bytes:
        yield f"{figures.stack_bytes + figures.local_bytes} bytes of local memory a thread"
    if compiled.reads and not figures.wide_loads:
        yield "reads weights or keys, and no load of it is of 128 bits"
    ceiling = ceilings.get(compiled.name)
    if ceiling is None:
        yield f"no ceiling in {CEILINGS} ({figures.registers} registers now)"
    elif figures.registers > ceiling:
        yield f"{figures.registers} registers, {ceiling} are allowed"
