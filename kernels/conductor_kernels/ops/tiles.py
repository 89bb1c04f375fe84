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
For int4 `COLUMNS` has to divide `GROUP`. `codes` gives a tile of unscaled weights alone.

    values_ptr   dense: values as they are; packed: the bytes as int32 (`stored`), on 16 bytes
    scale_ptr    float32 [O, 1], int4 [O, ceil(I / GROUP)]; zero_ptr the same, read if has_zero != 0
    rows         [ROWS] int32: which rows of the matrix, in any order; row_mask [ROWS]: those there
    units        row length in 16 bytes (`units`); inputs I, a multiple of 64
    KIND         "dense", "int8", "fp8" or "int4"; GROUP a power of two from 32 on (0 if not int4)
    COLUMNS      a power of two, at least a whole 16 bytes of weights; for int4 at least GROUP

Weights are decoded without conversions from integers, which run at a fraction of a multiplication's
rate. Where x is a vector, a field of a 32-bit word is masked in place and read as the bits of a
float: below 2^-126 those are plain fixed point, p bits up is 2^p times more, and x carries the
powers of two that make up for it, so a weight costs one mask and one multiplication. x is raised by
2^96 and no more, so that x up to 2^31 stays a number; the sums, then 2^53 too small, are raised
later. It needs subnormal numbers kept, as Triton compiles by default. The values of e4m3 fit the
same way: exponent and mantissa four bits down are a float 2^120 too small, its subnormals included.
NaN of e4m3, which no export writes, would read as 480.
"""

from __future__ import annotations

import torch
from torch import Tensor

from conductor_kernels.language import jit, tl


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
        tile = _tiny_int8(tile, ROWS, COLUMNS) * _raised(x, 96, 8, 2, COLUMNS)[None, :]
        sums = _sums(tile, ROWS, COLUMNS, 16)
    elif KIND == "fp8":
        tile = _tiny_fp8(tile, ROWS, COLUMNS) * (x * 2.0**60)[None, :]
        sums = _sums(tile, ROWS, COLUMNS, 16)
    else:
        tile = _tiny_int4(tile, ROWS, COLUMNS) * _raised(x, 96, 4, 4, COLUMNS)[None, :]
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
    tile = codes(values_ptr, rows, row_mask, start, units, KIND, ROWS, COLUMNS).to(x.dtype)
    sums = tl.dot(tile, x, input_precision="ieee")
    if KIND == "int4":
        total = tl.sum(x.to(tl.float32), 0)
        groups = tl.cdiv(inputs, GROUP)
        at = rows.to(tl.int64) * groups + start // GROUP
        scale = tl.load(scale_ptr + at, mask=row_mask, other=0.0)
        zero = tl.load(zero_ptr + at, mask=row_mask & (has_zero != 0), other=8.0)
        sums = scale[:, None] * (sums - zero[:, None] * total[None, :])
    return sums


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
        whole = _whole_int8(tile, ROWS, COLUMNS)
    elif KIND == "fp8":
        whole = _tiny_fp8(tile, ROWS, COLUMNS) * 2.0**120
    else:
        whole = _whole_int4(tile, ROWS, COLUMNS)
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
    """Scale and zero point of each group of a tile: [ROWS, COLUMNS / GROUP]."""
    groups = tl.cdiv(inputs, GROUP)
    group = start // GROUP + tl.arange(0, COLUMNS // GROUP)
    there = row_mask[:, None] & (group < groups)[None, :]
    at = rows.to(tl.int64)[:, None] * groups + group[None, :]
    scale = tl.load(scale_ptr + at, mask=there, other=0.0)
    return scale, tl.load(zero_ptr + at, mask=there & (has_zero != 0), other=8.0)


@jit
def _field(words, MASK: tl.constexpr):
    """Fields of words where they stand, as floats: 2^-149 times their worth."""
    return (words & MASK).to(tl.float32, bitcast=True)


@jit
def _tiny_int4(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS]: inputs j and j + 4 of a word are 2^(4 (j % 4) - 149) times their code."""
    high = words >> 16
    first = tl.join(_field(words, 0xF), _field(high, 0xF))
    second = tl.join(_field(words, 0xF0), _field(high, 0xF0))
    third = tl.join(_field(words, 0xF00), _field(high, 0xF00))
    fourth = tl.join(_field(words, 0xF000), _field(high, 0xF000))
    return tl.reshape(tl.join(tl.join(first, third), tl.join(second, fourth)), [ROWS, COLUMNS])


@jit
def _signed(words, MASK: tl.constexpr):
    """Fields of bytes with 128 added, as floats without it."""
    middle = tl.full([1, 1], MASK & 0x8080, tl.int32)
    return _field(words, MASK) - middle.to(tl.float32, bitcast=True)


@jit
def _tiny_int8(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS]: inputs j and j + 2 of a word are 2^(8 (j % 2) - 149) times their code."""
    words = words ^ -0x7F7F7F80
    high = words >> 16
    first = tl.join(_signed(words, 0xFF), _signed(high, 0xFF))
    second = tl.join(_signed(words, 0xFF00), _signed(high, 0xFF00))
    return tl.reshape(tl.join(first, second), [ROWS, COLUMNS])


@jit
def _small_float(words, UP: tl.constexpr):
    """The e4m3 that lies UP bits below the top of each word, as a float 2^120 too small."""
    return (((words << UP) >> 4) & -0x78100000).to(tl.float32, bitcast=True)


@jit
def _tiny_fp8(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS], 2^-120 times their worth."""
    even = tl.join(_small_float(words, 24), _small_float(words, 8))
    odd = tl.join(_small_float(words, 16), _small_float(words, 0))
    return tl.reshape(tl.join(even, odd), [ROWS, COLUMNS])


@jit
def _whole(words, MASK: tl.constexpr, MIDDLE: tl.constexpr):
    """The field at the bottom of each word less MIDDLE, by 2^23, whose last place is 1."""
    return ((words & MASK) | 0x4B000000).to(tl.float32, bitcast=True) - (2.0**23 + MIDDLE)


@jit
def _whole_int4(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    a = tl.join(_whole(words, 0xF, 0), _whole(words >> 16, 0xF, 0))
    b = tl.join(_whole(words >> 4, 0xF, 0), _whole(words >> 20, 0xF, 0))
    c = tl.join(_whole(words >> 8, 0xF, 0), _whole(words >> 24, 0xF, 0))
    d = tl.join(_whole(words >> 12, 0xF, 0), _whole(words >> 28, 0xF, 0))
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [ROWS, COLUMNS])


@jit
def _whole_int8(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    words = words ^ -0x7F7F7F80
    even = tl.join(_whole(words, 0xFF, 128), _whole(words >> 16, 0xFF, 128))
    odd = tl.join(_whole(words >> 8, 0xFF, 128), _whole(words >> 24, 0xFF, 128))
    return tl.reshape(tl.join(even, odd), [ROWS, COLUMNS])
