"""Kernels that a build has to refuse: one that does not compile, one too large for some GPUs."""

from __future__ import annotations

from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import jit, tl


@jit
def unlike(x, out, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Adds rows of two lengths."""
    tl.store(out + tl.arange(0, SIZE), tl.load(x + tl.arange(0, SIZE)) + tl.arange(0, 2 * SIZE))


@jit
def multiply(x, out, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A square times itself, by way of shared memory."""
    at = tl.arange(0, SIZE)
    places = at[:, None] * SIZE + at[None, :]
    left = tl.load(x + places)
    right = tl.load(x + SIZE * SIZE + places)
    tl.store(out + places, tl.dot(left, right))


BROKEN = Kernel("broken", unlike, {"x": "*fp32", "out": "*fp32"}, {"SIZE": 64})
WIDE = Kernel(
    "wide",
    multiply,
    {"x": "*fp16", "out": "*fp32"},
    {"SIZE": 256},
    frozenset({"x", "out"}),
    warps=32,
)
KERNELS = (BROKEN, WIDE)
