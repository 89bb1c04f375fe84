"""The first half of a SwiGLU layer (Shazeer, arXiv:2002.05202): silu(gate x) * (up x), x normed.

Both matrices stand in one, gate above up; a program owns the same rows of both, so what it
multiplies never leaves it. For one vector the root mean square is summed beside the products and
divides them at the end; for a batch each program finds it first, since the tensor cores take
rounded numbers. Columns are not split: the two matrices have rows enough.
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
from conductor_kernels.ops.norm import rms_norm_reference
from conductor_kernels.ops.tiles import (
    batch_finished,
    batch_products,
    finished,
    no_products,
    products,
    units,
)

_VECTOR_ROWS = 16
"""Of both matrices, in tiles of half the columns of `linear`'s: a value of x serves more rows, and
there are rows enough. With all its columns int4 took 128 registers."""
_BATCH_ROWS = 32
"""Of each matrix; also more programs, since columns are not split. Not measured."""


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
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = rows < outputs
    gates = no_products(values_ptr, KIND, GROUP, ROWS, COLUMNS)
    ups = no_products(values_ptr, KIND, GROUP, ROWS, COLUMNS)
    squares = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, inputs, COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        x = tl.load(x_ptr + at, mask=at < inputs, other=0.0).to(tl.float32)
        norm = tl.load(norm_ptr + at, mask=at < inputs, other=0.0).to(tl.float32)
        squares += x * x
        x = x * norm
        # fmt: off
        gates += products(values_ptr, scale_ptr, zero_ptr, has_zero, rows, mask, start, inputs,
                          units, x, KIND, GROUP, ROWS, COLUMNS)
        ups += products(values_ptr, scale_ptr, zero_ptr, has_zero, rows + outputs, mask, start,
                        inputs, units, x, KIND, GROUP, ROWS, COLUMNS)
        # fmt: on
    scale = tl.rsqrt(tl.sum(squares, 0) / inputs + eps)
    gate = finished(tl.sum(gates, 1), scale_ptr, rows, mask, KIND) * scale
    up = finished(tl.sum(ups, 1), scale_ptr, rows + outputs, mask, KIND) * scale
    tl.store(y_ptr + rows, _silu_times(gate, up), mask=mask)


@jit
def _batch_kernel(
    y_ptr,
    x_ptr,
    norm_ptr,
    eps,
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
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = rows < outputs
    vectors = tl.program_id(1) * PADDED + tl.arange(0, PADDED)
    there = vectors < batch
    x_ptr += vectors[None, :] * inputs
    squares = tl.zeros([COLUMNS, PADDED], tl.float32)
    for start in range(0, inputs, COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        within = (at < inputs)[:, None] & there[None, :]
        x = tl.load(x_ptr + at[:, None], mask=within, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, 0) / inputs + eps)
    gates = tl.zeros([ROWS, PADDED], tl.float32)
    ups = tl.zeros([ROWS, PADDED], tl.float32)
    for start in range(0, inputs, COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        within = (at < inputs)[:, None] & there[None, :]
        loaded = tl.load(x_ptr + at[:, None], mask=within, other=0.0)
        norm = tl.load(norm_ptr + at, mask=at < inputs, other=0.0).to(tl.float32)
        x = loaded.to(tl.float32) * scale[None, :] * norm[:, None]
        if not UPCAST:
            x = x.to(loaded.dtype)
        # fmt: off
        gates += batch_products(values_ptr, scale_ptr, zero_ptr, has_zero, rows, mask, start,
                                inputs, units, x, KIND, GROUP, ROWS, COLUMNS)
        ups += batch_products(values_ptr, scale_ptr, zero_ptr, has_zero, rows + outputs, mask,
                              start, inputs, units, x, KIND, GROUP, ROWS, COLUMNS)
        # fmt: on
    gate = batch_finished(gates, scale_ptr, rows, mask, KIND)
    up = batch_finished(ups, scale_ptr, rows + outputs, mask, KIND)
    at = vectors[None, :] * outputs + rows[:, None]
    tl.store(y_ptr + at, _silu_times(gate, up), mask=mask[:, None] & there[None, :])


_VECTOR = "y_ptr x_ptr norm_ptr eps values_ptr scale_ptr zero_ptr has_zero outputs inputs units"
_BATCH = _VECTOR.replace("outputs", "batch outputs")


@cache
def _specialised(kind: str, group: int, activations: str, one: bool) -> Kernel:
    name = f"gate_up_{packed.label(kind, group, activations)}"
    if one:
        constants = packed.vector_constants(kind, group, _VECTOR_ROWS)
        constants["ROWS"] //= 2
        return packed.kernel_of(f"{name}_b1", _vector_kernel, _VECTOR, constants, activations)
    constants = packed.batch_constants(kind, group, _BATCH_ROWS)
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
    programs = -(-outputs // int(kernel.constants["ROWS"]))
    y = x.new_empty((batch, outputs))
    matrix = packed.matrix_arguments(values, scale, zero, x.new_empty(1, dtype=torch.float32))
    sizes = (outputs, inputs, units(values))
    arguments = (y, x.contiguous(), norm.to(x.dtype).contiguous(), eps, *matrix)
    if batch == 1:
        launch(kernel, (programs,), (*arguments, *sizes))
    else:
        launch(kernel, (programs, -(-batch // packed.PADDED)), (*arguments, batch, *sizes))
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
