"""Kernels that a static gate has to tell apart: one as it should be, and two with faults.

They have the shape of an op's file, so that builds and gates take them as they take ops.
"""

from __future__ import annotations

from typing import Any

from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import jit, tl


@jit
def weigh(weights, x, out, inputs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One output a program: a row of weights times x."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, inputs, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < inputs
        part = tl.load(weights + row * inputs + at, mask=inside, other=0.0).to(tl.float32)
        total += part * tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row, tl.sum(total, 0))


@jit
def hoard(x, out, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Numbers that are needed again when all of them are known: more than one warp can hold."""
    at = tl.arange(0, SIZE)
    numbers = tl.load(x + at)
    tl.store(out + at, numbers * tl.sum(numbers, 0))


_WEIGH: dict[str, Any] = {
    "function": weigh,
    "signature": {"weights": "*bf16", "x": "*fp32", "out": "*fp32", "inputs": "i32"},
    "constants": {"BLOCK": 1024},
    "reads": frozenset({"weights"}),
}
GOOD = Kernel(name="good", divisible=frozenset({"weights", "x", "out", "inputs"}), **_WEIGH)
NARROW = Kernel(name="narrow", divisible=frozenset({"x", "out", "inputs"}), **_WEIGH)
SPILLS = Kernel(
    name="spills",
    function=hoard,
    signature={"x": "*fp32", "out": "*fp32"},
    constants={"SIZE": 8192},
    divisible=frozenset({"x", "out"}),
    warps=1,
)
KERNELS = (GOOD, NARROW, SPILLS)
