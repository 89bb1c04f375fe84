"""Kernels of `qkv.py`: one for a single sequence, two for up to 16 at once.

A program owns ROWS rows of the matrix, in pairs: row d of a head and row d + D / 2, which rotate
together, so what it has computed it can turn and write at once. Its rows belong to one head.

One sequence: each program adds and squares the whole input beside its products, and divides them by
the root mean square when they are finished; that costs less than a launch. Of 16 sequences the
input is as large as a program's weights, so a small kernel adds and norms it once.

Arguments are those of `qkv.py`; `added_ptr` is the sum of x and delta, `query_ptr` [B, heads, D].
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
def qkv_vector_kernel(
    query_ptr,
    added_ptr,
    keys_ptr,
    cached_ptr,
    x_ptr,
    delta_ptr,
    has_delta,
    norm_ptr,
    eps,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    bias_ptr,
    has_bias,
    cosines_ptr,
    sines_ptr,
    positions_ptr,
    slots_ptr,
    inputs,
    units,
    heads,
    kv_heads,
    D: tl.constexpr,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One sequence: grid (rows by ROWS). The first program writes the sum of x and delta."""
    program = tl.program_id(0)
    head, start, rows = _rows(program, D, ROWS)
    sums = no_products(values_ptr, KIND, GROUP, ROWS, COLUMNS)
    squares = tl.zeros([COLUMNS], tl.float32)
    for column in range(0, inputs, COLUMNS):
        at = column + tl.arange(0, COLUMNS)
        within = at < inputs
        x = _added(x_ptr, delta_ptr, has_delta, at, within)
        tl.store(added_ptr + at, x, mask=within & (program == 0))
        squares += x * x
        x *= tl.load(norm_ptr + at, mask=within, other=0.0).to(tl.float32)
        # fmt: off
        sums += products(values_ptr, scale_ptr, zero_ptr, has_zero, rows, rows >= 0, column,
                         inputs, units, x, KIND, GROUP, ROWS, COLUMNS)
        # fmt: on
    made = finished(tl.sum(sums, 1), scale_ptr, rows, rows >= 0, KIND)
    made *= tl.rsqrt(tl.sum(squares, 0) / inputs + eps)
    # fmt: off
    _finish(made[:, None], head, start, rows, tl.arange(0, 1), 1, bias_ptr, has_bias, cosines_ptr,
            sines_ptr, positions_ptr, slots_ptr, query_ptr, keys_ptr, cached_ptr, heads, kv_heads,
            D, ROWS, 1)
    # fmt: on


@jit
def qkv_norm_kernel(
    added_ptr,
    normed_ptr,
    x_ptr,
    delta_ptr,
    has_delta,
    norm_ptr,
    eps,
    inputs,
    COLUMNS: tl.constexpr,
):
    """The sum of x and delta, and its norm: grid (B). The sum is made twice, which is quicker than
    to wait until it can be read again."""
    first = tl.program_id(0) * inputs
    squares = tl.zeros([COLUMNS], tl.float32)
    for column in range(0, inputs, COLUMNS):
        at = column + tl.arange(0, COLUMNS)
        x = _added(x_ptr, delta_ptr, has_delta, first + at, at < inputs)
        tl.store(added_ptr + first + at, x, mask=at < inputs)
        squares += x * x
    factor = tl.rsqrt(tl.sum(squares, 0) / inputs + eps)
    for column in range(0, inputs, COLUMNS):
        at = column + tl.arange(0, COLUMNS)
        x = _added(x_ptr, delta_ptr, has_delta, first + at, at < inputs) * factor
        x *= tl.load(norm_ptr + at, mask=at < inputs, other=0.0).to(tl.float32)
        tl.store(normed_ptr + first + at, x, mask=at < inputs)


@jit
def qkv_batch_kernel(
    query_ptr,
    keys_ptr,
    cached_ptr,
    normed_ptr,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    bias_ptr,
    has_bias,
    cosines_ptr,
    sines_ptr,
    positions_ptr,
    slots_ptr,
    batch,
    inputs,
    units,
    heads,
    kv_heads,
    D: tl.constexpr,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Up to PADDED sequences: grid (rows by ROWS, sequences by PADDED)."""
    head, start, rows = _rows(tl.program_id(0), D, ROWS)
    token = tl.program_id(1) * PADDED + tl.arange(0, PADDED)
    sums = tl.zeros([ROWS, PADDED], tl.float32)
    for column in range(0, inputs, COLUMNS):
        at = column + tl.arange(0, COLUMNS)
        within = (at < inputs)[:, None] & (token < batch)[None, :]
        x = tl.load(normed_ptr + token[None, :] * inputs + at[:, None], mask=within, other=0.0)
        if UPCAST:
            x = x.to(tl.float32)
        # fmt: off
        sums += batch_products(values_ptr, scale_ptr, zero_ptr, has_zero, rows, rows >= 0, column,
                               inputs, units, x, KIND, GROUP, ROWS, COLUMNS)
        # fmt: on
    made = batch_finished(sums, scale_ptr, rows, rows >= 0, KIND)
    # fmt: off
    _finish(made, head, start, rows, token, batch, bias_ptr, has_bias, cosines_ptr, sines_ptr,
            positions_ptr, slots_ptr, query_ptr, keys_ptr, cached_ptr, heads, kv_heads,
            D, ROWS, PADDED)
    # fmt: on


@jit
def _rows(program, D: tl.constexpr, ROWS: tl.constexpr):
    """A program's head, its first pair's number in the head, and its rows: pairs side by side."""
    PARTS: tl.constexpr = D // ROWS
    head = program // PARTS
    start = program % PARTS * (ROWS // 2)
    local = tl.arange(0, ROWS)
    return head, start, head * D + start + local // 2 + local % 2 * (D // 2)


@jit
def _added(x_ptr, delta_ptr, has_delta, at, within):
    """The sum of x and delta as float32, but as rounded as it is written."""
    x = tl.load(x_ptr + at, mask=within, other=0.0).to(tl.float32)
    x += tl.load(delta_ptr + at, mask=within & (has_delta != 0), other=0.0).to(tl.float32)
    return x.to(x_ptr.dtype.element_ty).to(tl.float32)


@jit
def _finish(
    made,
    head,
    start,
    rows,
    token,
    batch,
    bias_ptr,
    has_bias,
    cosines_ptr,
    sines_ptr,
    positions_ptr,
    slots_ptr,
    query_ptr,
    keys_ptr,
    cached_ptr,
    heads,
    kv_heads,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Bias, rotation and writing of the products [ROWS, PADDED] of the sequences `token`."""
    bias = tl.load(bias_ptr + rows, mask=(rows >= 0) & (has_bias != 0), other=0.0)
    made += bias.to(tl.float32)[:, None]
    pairs = tl.permute(tl.reshape(made, [ROWS // 2, 2, PADDED]), [0, 2, 1])
    first, second = tl.split(pairs)
    there = token < batch
    pair = start + tl.arange(0, ROWS // 2)[:, None]
    if head < heads + kv_heads:
        at = tl.load(positions_ptr + token, mask=there, other=0)[None, :] * D + pair
        cosine = tl.load(cosines_ptr + at, mask=there[None, :], other=0.0).to(tl.float32)
        sine = tl.load(sines_ptr + at, mask=there[None, :], other=0.0).to(tl.float32)
        turned = second * cosine + first * sine
        first = first * cosine - second * sine
        second = turned
    if head < heads:
        place = query_ptr + (token * heads + head)[None, :] * D + pair
        tl.store(place, first, mask=there[None, :])
        tl.store(place + D // 2, second, mask=there[None, :])
    else:
        slot = tl.load(slots_ptr + token, mask=there, other=-1).to(tl.int64)[None, :]
        kept = slot >= 0
        if head < heads + kv_heads:
            place = keys_ptr + (slot * kv_heads + head - heads) * D + pair
        else:
            place = cached_ptr + (slot * kv_heads + head - heads - kv_heads) * D + pair
        tl.store(place, first, mask=kept)
        tl.store(place + D // 2, second, mask=kept)
