"""Kernels' common way to read a matrix of `matrix.py`: for one vector, and for up to 16 at once.

One vector (a GEMV): partial sums pile up in registers, and are added over the columns at the end.

    sums = no_products(values_ptr, KIND, GROUP, ROWS, COLUMNS)
    for start in range(0, inputs, COLUMNS):
        x = ...                                     # [COLUMNS] float32, 0 from `inputs` on
        sums += products(values_ptr, scale_ptr, zero_ptr, has_zero, rows, row_mask, start, inputs,
                         units, x, KIND, GROUP, ROWS, COLUMNS)
    y = finished(tl.sum(sums, 1), scale_ptr, rows, row_mask, KIND)                  # [ROWS] float32

Up to 16 vectors (a GEMM by tensor cores, padded): the same with `x` [COLUMNS, 16] in the type that
is multiplied in, `sums = tl.zeros([ROWS, 16], tl.float32)`, `batch_products` and `batch_finished`.
`codes` gives a tile of unscaled weights alone.

    values_ptr   dense: values as they are; packed: the bytes as int32 (`stored`), on 16 bytes
    scale_ptr    float32 [O, 1], int4 [O, ceil(I / GROUP)]; zero_ptr the same, read if has_zero != 0
    rows         [ROWS] int32: which rows of the matrix, in any order; row_mask [ROWS]: those there
    units        row length in 16 bytes (`units`); inputs I, a multiple of 64
    KIND         "dense", "int8", "fp8" or "int4"; GROUP a power of two from 32 on (0 if not int4)
    COLUMNS      a power of two, at least a whole 16 bytes of weights; where x is one vector at
                 least GROUP

How the bits of weights become numbers is in `words.py`; for one vector they come out small, which x
is raised by powers of two to make up for.

The tensor cores take numbers of x's type. The codes of int8 and fp8 are such, and are scaled after
they are summed; a tile of int4 has several scales, so its weights are scaled before, and rounded:
in bfloat16 by at most 15 / 2^9 of a step of their grid, where the grid itself is off by up to 1/2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from conductor_kernels.language import jit, tl
from conductor_kernels.ops.words import (
    above_one_int4,
    scaled_int4,
    tiny_fp8,
    tiny_int4,
    tiny_int8,
    whole_int8,
)


def stored(values: Tensor) -> Tensor:
    """Values as kernels take them: packed ones as int32, no copy. [O, units x 4]"""
    wide = values.is_floating_point() and values.itemsize > 1
    return values if wide else values.view(torch.int32)


def units(values: Tensor) -> int:
    """Length of a row in 16 bytes: what one load reads."""
    return values.shape[1] * values.element_size() // 16


# -- one vector -----------------------------------------------------------------------------------


@jit
def no_products(
    values_ptr, KIND: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Zeros in the shape of `products`: a sum for each 16 bytes of a row, or each group of int4."""
    UNIT: tl.constexpr = 128 // values_ptr.dtype.element_ty.primitive_bitwidth
    BYTES: tl.constexpr = UNIT if KIND == "dense" else 4 * UNIT
    WIDTH: tl.constexpr = GROUP if KIND == "int4" else BYTES
    return tl.zeros([ROWS, COLUMNS // WIDTH], tl.float32)


@jit
def products(
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    rows,
    row_mask,
    start,
    inputs,
    units,
    x,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sums of the weights in columns `start` to `start + COLUMNS` times x [COLUMNS] float32."""
    tile = _fetch(values_ptr, rows, row_mask, start, units, KIND, ROWS, COLUMNS)
    if KIND == "dense":
        WIDTH: tl.constexpr = 128 // values_ptr.dtype.element_ty.primitive_bitwidth
        sums = _sums(tile.to(tl.float32) * x[None, :], ROWS, COLUMNS, WIDTH)
    elif KIND == "int8":
        tile = tiny_int8(tile, ROWS, COLUMNS) * _raised(x, 96, 8, 2, COLUMNS)[None, :]
        sums = _sums(tile, ROWS, COLUMNS, 16)
    elif KIND == "fp8":
        tile = tiny_fp8(tile, ROWS, COLUMNS) * (x * 2.0**60)[None, :]
        sums = _sums(tile, ROWS, COLUMNS, 16)
    else:
        tile = tiny_int4(tile, ROWS, COLUMNS) * _raised(x, 96, 4, 4, COLUMNS)[None, :]
        part = _sums(tile, ROWS, COLUMNS, GROUP)
        total = tl.sum(tl.reshape(x, [COLUMNS // GROUP, GROUP]), 1)
        scale, zero = _scales(
            scale_ptr, zero_ptr, has_zero, rows, row_mask, start, inputs, GROUP, COLUMNS
        )
        sums = scale * (part * 2.0**53 - zero * total[None, :])
    return sums


@jit
def finished(sums, scale_ptr, rows, row_mask, KIND: tl.constexpr):
    """The products of whole rows, [ROWS] float32, from their sums."""
    if KIND == "int8":
        sums = sums * 2.0**53 * tl.load(scale_ptr + rows, mask=row_mask, other=0.0)
    elif KIND == "fp8":
        sums = sums * 2.0**60 * tl.load(scale_ptr + rows, mask=row_mask, other=0.0)
    return sums


# -- up to 16 vectors -----------------------------------------------------------------------------


@jit
def batch_products(
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    rows,
    row_mask,
    start,
    inputs,
    units,
    x,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The weights in columns `start` to `start + COLUMNS` times x [COLUMNS, 16]: [ROWS, 16]."""
    if KIND == "int4":
        tile = _fetch(values_ptr, rows, row_mask, start, units, KIND, ROWS, COLUMNS)
        scale, zero = _scales(
            scale_ptr, zero_ptr, has_zero, rows, row_mask, start, inputs, GROUP, COLUMNS
        )
        tile = scaled_int4(tile, scale, zero, GROUP, ROWS, COLUMNS)
    else:
        tile = codes(values_ptr, rows, row_mask, start, units, KIND, ROWS, COLUMNS)
    return tl.dot(tile.to(x.dtype), x, input_precision="ieee")


@jit
def batch_finished(sums, scale_ptr, rows, row_mask, KIND: tl.constexpr):
    """The products of whole rows, [ROWS, 16] float32, from their sums."""
    if KIND == "int8" or KIND == "fp8":
        sums = sums * tl.load(scale_ptr + rows, mask=row_mask, other=0.0)[:, None]
    return sums


@jit
def codes(
    values_ptr,
    rows,
    row_mask,
    start,
    units,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Weights before their scale, exact: [ROWS, COLUMNS] float32; int4 as 0 to 15."""
    tile = _fetch(values_ptr, rows, row_mask, start, units, KIND, ROWS, COLUMNS)
    if KIND == "dense":
        whole = tile.to(tl.float32)
    elif KIND == "int8":
        whole = whole_int8(tile, ROWS, COLUMNS)
    elif KIND == "fp8":
        whole = tiny_fp8(tile, ROWS, COLUMNS) * 2.0**120
    else:
        whole = above_one_int4(tile, ROWS, COLUMNS) * 16.0 - 16.0
    return whole


# -- parts ----------------------------------------------------------------------------------------


@jit
def _fetch(
    values_ptr,
    rows,
    row_mask,
    start,
    units,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The tile as it lies in memory, by loads of 16 bytes: elements if dense, else int32."""
    PACKED: tl.constexpr = 8 if KIND == "int4" else 4
    EACH: tl.constexpr = 1 if KIND == "dense" else PACKED
    UNIT: tl.constexpr = 128 // values_ptr.dtype.element_ty.primitive_bitwidth
    length = units * UNIT
    at = start // EACH + tl.arange(0, COLUMNS // EACH)
    places = values_ptr + rows.to(tl.int64)[:, None] * length + at[None, :]
    return tl.load(places, mask=row_mask[:, None] & (at < length)[None, :], other=0)


@jit
def _sums(tile, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr):
    """Each WIDTH columns added up: [ROWS, COLUMNS / WIDTH]. A thread holds them, or four do."""
    return tl.sum(tl.reshape(tile, [ROWS, COLUMNS // WIDTH, WIDTH]), 2)


@jit
def _raised(x, BY: tl.constexpr, BITS: tl.constexpr, FIELDS: tl.constexpr, COLUMNS: tl.constexpr):
    """x times 2^BY, over the power of two of the place that its weight has in a half word."""
    field = tl.arange(0, COLUMNS) & (FIELDS - 1)
    return x * ((127 + BY - BITS * field) << 23).to(tl.float32, bitcast=True)


@jit
def _scales(
    scale_ptr,
    zero_ptr,
    has_zero,
    rows,
    row_mask,
    start,
    inputs,
    GROUP: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Scale and zero point of each group of a tile: [ROWS, COLUMNS / GROUP], or of its only one."""
    WIDTH: tl.constexpr = GROUP if GROUP < COLUMNS else COLUMNS
    groups = tl.cdiv(inputs, GROUP)
    group = start // GROUP + tl.arange(0, COLUMNS // WIDTH)
    there = row_mask[:, None] & (group < groups)[None, :]
    at = rows.to(tl.int64)[:, None] * groups + group[None, :]
    scale = tl.load(scale_ptr + at, mask=there, other=0.0)
    return scale, tl.load(zero_ptr + at, mask=there & (has_zero != 0), other=8.0)
