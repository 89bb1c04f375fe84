"""What an ahead-of-time build has to know of a kernel: each file in `ops/` says it in `KERNELS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kernel:
    """One kernel in one specialisation: the same function may be listed with several constants."""

    name: str
    """Unique over all ops: what reports and launches call it, such as `linear_int4_b1`."""
    function: Any = field(repr=False, compare=False)
    """The `jit` function."""
    signature: Mapping[str, str]
    """Every argument that is no constant, in the function's order: Triton's type, such as `*bf16`,
    `i32`, `fp32`."""
    constants: Mapping[str, int | float | bool | str]
    """Every `tl.constexpr` argument."""
    divisible: frozenset[str] = frozenset()
    """Arguments that are a multiple of 16: pointers by their alignment, numbers by their value.
    Without it a load is not vectorised."""
    warps: int = 4
    stages: int = 2
    reads: frozenset[str] = frozenset()
    """Arguments that point to weights, or to keys and values: all loads of them have to be of 128
    bits, whatever others are."""
