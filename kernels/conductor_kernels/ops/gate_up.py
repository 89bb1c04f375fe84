"""The first half of a SwiGLU layer (Shazeer, arXiv:2002.05202): silu(gate x) * (up x), x normed.

Both matrices stand in one, gate above up; a program owns the same rows of both, as one tile, so
what it multiplies never leaves it. For one vector the root mean square is summed beside the
products and divides them at the end; a batch, which is as large as a program's weights, is normed
before, once. Columns are not split: the two matrices have rows enough.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import INTERPRETED, jit, tl
from conductor_kernels.launch import launch
from conductor_kernels.ops import packed
from conductor_kernels.ops.linear import linear_reference
from conductor_kernels.ops.norm import launch_norm, rms_norm_reference
from conductor_kernels.ops.tiles import (
    batch_finished,
    batch_products,
    finished,
    no_products,
    products,
    units,
)

_VECTOR_ROWS = 16
"""Half of them of each matrix, in tiles of half the columns of `linear`'s: a value of x serves more
rows, and there are rows enough. With all its columns int4 took 128 registers."""


def gate_up_reference(
    x: Tensor,
    norm: Tensor,
    eps: float,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
) -> Tensor:
    """What `gate_up` gives, in plain torch."""
    normed = rms_norm_reference(x, norm, eps)
    both = linear_reference(normed, values, scale, zero, group, None, None)
    gate, up = both.chunk(2, dim=-1)
    return functional.silu(gate) * up


@jit
def _silu_times(gate, up):
    """silu(gate) * up, with no power of e that overflows."""
    small = tl.exp(-tl.abs(gate))
    return gate * tl.where(gate < 0.0, small, 1.0) / (1.0 + small) * up


@jit
def _rows(outputs, ROWS: tl.constexpr):
    """A program's rows of the matrix and of the answer, and which of these are there: [ROWS] of
    gate and then as many of up, and [ROWS / 2]."""
    HALF: tl.constexpr = ROWS // 2
    local = tl.arange(0, ROWS)
    row = tl.program_id(0) * HALF + local % HALF
    y_rows = tl.program_id(0) * HALF + tl.arange(0, HALF)
    return row + local // HALF * outputs, row < outputs, y_rows, y_rows < outputs


@jit
def _vector_kernel(
    y_ptr,
    x_ptr,
    norm_ptr,
    eps,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    outputs,
    inputs,
    units,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    rows, there, y_rows, y_there = _rows(outputs, ROWS)
    sums = no_products(values_ptr, KIND, GROUP, ROWS, COLUMNS)
    squares = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, inputs, COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        x = tl.load(x_ptr + at, mask=at < inputs, other=0.0).to(tl.float32)
        norm = tl.load(norm_ptr + at, mask=at < inputs, other=0.0).to(tl.float32)
        squares += x * x
        x = x * norm
        # fmt: off
        sums += products(values_ptr, scale_ptr, zero_ptr, has_zero, rows, there, start, inputs,
                         units, x, KIND, GROUP, ROWS, COLUMNS)
        # fmt: on
    both = finished(tl.sum(sums, 1), scale_ptr, rows, there, KIND)
    both *= tl.rsqrt(tl.sum(squares, 0) / inputs + eps)
    gate, up = tl.split(tl.permute(tl.reshape(both, [2, ROWS // 2]), [1, 0]))
    tl.store(y_ptr + y_rows, _silu_times(gate, up), mask=y_there)


@jit
def _batch_kernel(
    y_ptr,
    normed_ptr,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    batch,
    outputs,
    inputs,
    units,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    UPCAST: tl.constexpr,
):
    rows, there, y_rows, y_there = _rows(outputs, ROWS)
    vectors = tl.program_id(1) * PADDED + tl.arange(0, PADDED)
    asked = (vectors < batch)[None, :]
    sums = tl.zeros([ROWS, PADDED], tl.float32)
    for start in range(0, inputs, COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        within = (at < inputs)[:, None] & asked
        x = tl.load(normed_ptr + vectors[None, :] * inputs + at[:, None], mask=within, other=0.0)
        if UPCAST:
            x = x.to(tl.float32)
        # fmt: off
        sums += batch_products(values_ptr, scale_ptr, zero_ptr, has_zero, rows, there, start,
                               inputs, units, x, KIND, GROUP, ROWS, COLUMNS)
        # fmt: on
    both = batch_finished(sums, scale_ptr, rows, there, KIND)
    gate, up = tl.split(tl.permute(tl.reshape(both, [2, ROWS // 2, PADDED]), [1, 2, 0]))
    at = vectors[None, :] * outputs + y_rows[:, None]
    tl.store(y_ptr + at, _silu_times(gate, up), mask=y_there[:, None] & asked)


_VECTOR = "y_ptr x_ptr norm_ptr eps values_ptr scale_ptr zero_ptr has_zero outputs inputs units"
_BATCH = "y_ptr normed_ptr values_ptr scale_ptr zero_ptr has_zero batch outputs inputs units"


@cache
def _specialised(kind: str, group: int, activations: str, one: bool) -> Kernel:
    name = f"gate_up_{packed.label(kind, group, activations)}"
    if one:
        constants = packed.vector_constants(kind, group, _VECTOR_ROWS)
        return packed.kernel_of(f"{name}_b1", _vector_kernel, _VECTOR, constants, activations)
    constants = packed.batch_constants(kind, group)
    return packed.kernel_of(f"{name}_b16", _batch_kernel, _BATCH, constants, activations)


KERNELS: tuple[Kernel, ...] = (
    *(_specialised(kind, group, "bf16", True) for kind, group in packed.BUILT),
    *(_specialised(kind, group, "bf16", False) for kind, group in packed.BUILT),
)


def _launch(
    x: Tensor,
    norm: Tensor,
    eps: float,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
) -> Tensor:
    (batch, inputs), outputs = x.shape, values.shape[0] // 2
    kernel = _specialised(*packed.specialise(x, values, group), batch == 1)
    programs = -(-2 * outputs // int(kernel.constants["ROWS"]))
    y = x.new_empty((batch, outputs))
    matrix = packed.matrix_arguments(values, scale, zero, x.new_empty(1, dtype=torch.float32))
    sizes = (outputs, inputs, units(values))
    if batch == 1:
        given = (x.contiguous(), norm.to(x.dtype).contiguous(), eps)
        launch(kernel, (programs,), (y, *given, *matrix, *sizes))
    else:
        arguments = (y, launch_norm(x, norm, eps), *matrix, batch, *sizes)
        launch(kernel, (programs, -(-batch // packed.PADDED)), arguments)
    return y


@torch.library.custom_op("conductor::gate_up", mutates_args=())
def gate_up(
    x: Tensor,
    norm: Tensor,
    eps: float,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
) -> Tensor:
    """silu(gate) * up of RMSNorm(x, norm, eps): [B, I] in the type of x, summed in float32.

    x is [B, H], norm [H], the matrix [2 I, H] of these parts (`matrix.py`) has the rows of gate
    and then those of up. On a GPU H is a multiple of 64, and int4 in groups of a power of two, 32
    to 1024; raises `StartError` for others.
    """
    if x.is_cuda or INTERPRETED:
        return _launch(x, norm, eps, values, scale, zero, group)
    return gate_up_reference(x, norm, eps, values, scale, zero, group)


@gate_up.register_fake
def _(
    x: Tensor,
    norm: Tensor,
    eps: float,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
) -> Tensor:
    return x.new_empty((x.shape[0], values.shape[0] // 2))
