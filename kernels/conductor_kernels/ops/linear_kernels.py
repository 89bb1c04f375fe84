"""The kernels of `linear`: one vector, up to 16 at once, and the sum of parts.

A program owns some rows of the matrix and, where the columns are split, every so many of their
tiles: program (r, s) reads rows r and the s-th run of `steps` tiles. What it has then is the answer
if there is one run, and else a partial sum of float32 that `linear_join_kernel` adds to the others,
in their order. x is [batch, inputs], y and the residual are [batch, outputs], the bias [outputs],
partial [splits, batch, outputs].
"""

from __future__ import annotations

from conductor_kernels.language import jit, tl
from conductor_kernels.ops.tiles import (
    batch_finished,
    batch_products,
    finished,
    no_products,
    products,
)


@jit
def linear_vector_kernel(
    y_ptr,
    partial_ptr,
    x_ptr,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    bias_ptr,
    has_bias,
    residual_ptr,
    has_residual,
    outputs,
    inputs,
    units,
    steps,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_mask = rows < outputs
    first = tl.program_id(1) * steps
    last = tl.minimum(first + steps, tl.cdiv(inputs, COLUMNS))
    sums = no_products(values_ptr, KIND, GROUP, ROWS, COLUMNS)
    for step in range(first, last):
        start = step * COLUMNS
        at = start + tl.arange(0, COLUMNS)
        x = tl.load(x_ptr + at, mask=at < inputs, other=0.0).to(tl.float32)
        sums += products(
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
            KIND,
            GROUP,
            ROWS,
            COLUMNS,
        )
    y = finished(tl.sum(sums, 1), scale_ptr, rows, row_mask, KIND)
    if tl.num_programs(1) > 1:
        tl.store(partial_ptr + tl.program_id(1) * outputs + rows, y, mask=row_mask)
    else:
        y = _ended(y, rows, rows, row_mask, bias_ptr, has_bias, residual_ptr, has_residual)
        tl.store(y_ptr + rows, y, mask=row_mask)


@jit
def linear_batch_kernel(
    y_ptr,
    partial_ptr,
    x_ptr,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    bias_ptr,
    has_bias,
    residual_ptr,
    has_residual,
    batch,
    outputs,
    inputs,
    units,
    steps,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    UPCAST: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_mask = rows < outputs
    vectors = tl.program_id(2) * PADDED + tl.arange(0, PADDED)
    vector_mask = vectors < batch
    first = tl.program_id(1) * steps
    last = tl.minimum(first + steps, tl.cdiv(inputs, COLUMNS))
    sums = tl.zeros([ROWS, PADDED], tl.float32)
    for step in range(first, last):
        start = step * COLUMNS
        at = start + tl.arange(0, COLUMNS)
        there = (at < inputs)[:, None] & vector_mask[None, :]
        x = tl.load(x_ptr + vectors[None, :] * inputs + at[:, None], mask=there, other=0.0)
        if UPCAST:
            x = x.to(tl.float32)
        sums += batch_products(
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
            KIND,
            GROUP,
            ROWS,
            COLUMNS,
        )
    y = batch_finished(sums, scale_ptr, rows, row_mask, KIND)
    there = row_mask[:, None] & vector_mask[None, :]
    at = vectors[None, :] * outputs + rows[:, None]
    if tl.num_programs(1) > 1:
        tl.store(partial_ptr + tl.program_id(1) * batch * outputs + at, y, mask=there)
    else:
        y = _ended(y, at, rows[:, None], there, bias_ptr, has_bias, residual_ptr, has_residual)
        tl.store(y_ptr + at, y, mask=there)


@jit
def linear_join_kernel(
    y_ptr,
    partial_ptr,
    bias_ptr,
    has_bias,
    residual_ptr,
    has_residual,
    size,
    outputs,
    splits,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < size
    y = tl.zeros([BLOCK], tl.float32)
    for split in range(splits):
        y += tl.load(partial_ptr + split * size + at, mask=there, other=0.0)
    y = _ended(y, at, at % outputs, there, bias_ptr, has_bias, residual_ptr, has_residual)
    tl.store(y_ptr + at, y, mask=there)


@jit
def _ended(y, at, rows, there, bias_ptr, has_bias, residual_ptr, has_residual):
    """The products with bias and residual, where there are such."""
    bias = tl.load(bias_ptr + rows, mask=there & (has_bias != 0), other=0.0)
    residual = tl.load(residual_ptr + at, mask=there & (has_residual != 0), other=0.0)
    return y + bias.to(tl.float32) + residual.to(tl.float32)
