"""What a kernel's machine code shows without a GPU, by the tools that Triton's wheel brings.

    cuobjdump -res-usage   registers, stack and local memory of a thread: milliseconds
    nvdisasm -c            instructions: local loads and stores are spills; 128-bit loads; numbers
                           turned into floating point one by one; tensor cores: seconds

Whose memory a load reads is told from what was assembled (`assembly.py`), whose widths are kept.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from conductor.errors import StartError
from conductor_build.compile.assembly import WIDE, flushed_fields, loads_of

_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_.]*)", re.M)
_SPILL = re.compile(r"(?:LDL|STL)\b")
_LOAD = re.compile(r"(?:LDG|LDGSTS|UBLKCP|UTMALDG)\b")
_WIDE = re.compile(r"(?:LDG|LDGSTS)\.(?:\w+\.)*(?:128|256)\b|(?:UBLKCP|UTMALDG)\b")
_CONVERTED = re.compile(r"I2FP?\b")
_TENSOR = re.compile(r"(?:UTC)?[A-Z]G?MMA\b")
_LIMIT_S = 300


@dataclass(frozen=True)
class Counts:
    """Of instructions in the machine code, not as run."""

    spills: int
    """Loads and stores of a thread's own memory."""
    loads: int
    """From the GPU's memory."""
    wide_loads: int
    """Of these, those of 128 bits or more for each thread, and bulk copies."""
    conversions: int
    """Whole numbers turned into floating point, one instruction each."""
    tensor: int
    """Matrix instructions of the tensor cores."""
    instructions: int


@dataclass(frozen=True)
class Figures:
    """Of one kernel on one architecture."""

    registers: int
    """Of a thread."""
    shared_bytes: int
    """Dynamic, of a block."""
    stack_bytes: int
    local_bytes: int
    """Both of a thread; memory of the GPU, which registers spill to."""
    weight_loads: int
    """In what was assembled, of weights or keys and values."""
    narrow_loads: int
    """Of these, those of fewer than 128 bits for a thread."""
    flushed: int
    """In what was assembled, sums and products that would take packed weights for zero."""
    counts: Counts | None = None
    """None: the machine code was not taken apart."""


def read_figures(
    cubin: bytes,
    ptx: str,
    shared_bytes: int,
    weights: Collection[int] = (),
    taken_apart: bool = True,
) -> Figures:
    """`weights`: places of the arguments that point to weights or keys and values.

    Raises `StartError` when the tools are not there or do not know the code.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _told("cuobjdump", "-res-usage", file.name)
        code = _told("nvdisasm", "-c", file.name) if taken_apart else None
    return figures_of(usage, ptx, code, shared_bytes, weights)


def figures_of(
    usage: str, ptx: str, code: str | None, shared_bytes: int, weights: Collection[int] = ()
) -> Figures:
    """The same of what the tools said."""
    found = _USAGE.search(usage)
    if found is None:
        raise _silent("cuobjdump")
    registers, stack, local = map(int, found.groups())
    own = [load.size for load in loads_of(ptx) if not load.arguments.isdisjoint(weights)]
    return Figures(
        registers=registers,
        shared_bytes=shared_bytes,
        stack_bytes=stack,
        local_bytes=local,
        weight_loads=len(own),
        narrow_loads=sum(size < WIDE for size in own),
        flushed=flushed_fields(ptx),
        counts=None if code is None else counts_of(code),
    )


def counts_of(code: str) -> Counts:
    """Of what nvdisasm said. Raises `StartError` when that holds no instruction."""
    operations = Counter(_INSTRUCTION.findall(code))
    if not operations:
        raise _silent("nvdisasm")

    def count(pattern: re.Pattern[str]) -> int:
        return sum(times for name, times in operations.items() if pattern.match(name))

    return Counts(
        spills=count(_SPILL),
        loads=count(_LOAD),
        wide_loads=count(_WIDE),
        conversions=count(_CONVERTED),
        tensor=count(_TENSOR),
        instructions=operations.total(),
    )


def _silent(tool: str) -> StartError:
    return StartError(
        f"{tool} of Triton's wheel says nothing of this machine code: install it anew"
    )


def _told(tool: str, *arguments: str) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    try:
        done = subprocess.run(  # noqa: S603  a file of Triton's wheel
            [path, *arguments], capture_output=True, text=True, timeout=_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        kind = type(error).__name__
        raise StartError(f"{tool} of Triton's wheel failed ({kind}): install Triton anew") from None
    return done.stdout
