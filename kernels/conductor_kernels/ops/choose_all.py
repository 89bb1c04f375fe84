"""The head over the whole vocabulary, with what is allowed in registers: for a plan's free text.

Logits never reach memory: each program keeps the choice among its own rows, of one vector, or of up
to 16 that share every weight that is read. Where no sequence asks for it, every program leaves at
once, so that a captured graph can hold this beside `choose_rows.py`.
"""

from __future__ import annotations

from functools import cache

from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import jit, tl
from conductor_kernels.ops import packed
from conductor_kernels.ops.choose_fold import fold, keep
from conductor_kernels.ops.choose_rows import folding
from conductor_kernels.ops.tiles import (
    batch_finished,
    batch_products,
    finished,
    no_products,
    products,
)

_ARGUMENTS = (
    "numbers_ptr chosen_ptr hidden_ptr values_ptr scale_ptr zero_ptr has_zero bits_ptr count_ptr "
    "temperature_ptr seed_ptr drawn_ptr drawn_step parts first_part batch outputs inputs units "
    "words"
)


@jit
def choose_all_vector_kernel(
    numbers_ptr,
    chosen_ptr,
    hidden_ptr,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    bits_ptr,
    count_ptr,
    temperature_ptr,
    seed_ptr,
    drawn_ptr,
    drawn_step,
    parts,
    first_part,
    batch,
    outputs,
    inputs,
    units,
    words,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    LOWEST: tl.constexpr,
    NO_TOKEN: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    """Of one sequence: grid (blocks of ROWS)."""
    if tl.load(count_ptr) < 0:
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        mask = rows < outputs
        sums = no_products(values_ptr, KIND, GROUP, ROWS, COLUMNS)
        for start in range(0, inputs, COLUMNS):
            at = start + tl.arange(0, COLUMNS)
            x = tl.load(hidden_ptr + at, mask=at < inputs, other=0.0)
            sums += products(
                values_ptr,
                scale_ptr,
                zero_ptr,
                has_zero,
                rows,
                mask,
                start,
                inputs,
                units,
                x.to(tl.float32),
                KIND,
                GROUP,
                ROWS,
                COLUMNS,
            )
        z = finished(tl.sum(sums, 1), scale_ptr, rows, mask, KIND) / tl.load(temperature_ptr)
        word = tl.load(bits_ptr + rows // 32, mask=mask, other=0)
        allowed = mask & (((word >> (rows % 32)) & 1) > 0)
        largest, total, best, logit, chosen = fold(
            z[:, None],
            rows[:, None],
            allowed[:, None],
            tl.load(seed_ptr) + tl.zeros([1], tl.int64),
            tl.load(drawn_ptr) + tl.zeros([1], tl.int32),
            LOWEST,
            NO_TOKEN,
        )
        part = first_part + tl.program_id(0) + tl.zeros([1], tl.int32)
        keep(numbers_ptr, chosen_ptr, part, largest, total, best, logit, chosen, part >= 0, NUMBERS)


@jit
def choose_all_batch_kernel(
    numbers_ptr,
    chosen_ptr,
    hidden_ptr,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    bits_ptr,
    count_ptr,
    temperature_ptr,
    seed_ptr,
    drawn_ptr,
    drawn_step,
    parts,
    first_part,
    batch,
    outputs,
    inputs,
    units,
    words,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    UPCAST: tl.constexpr,
    LOWEST: tl.constexpr,
    NO_TOKEN: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    """Of PADDED sequences: grid (blocks of ROWS, sequences by PADDED)."""
    vectors = tl.program_id(1) * PADDED + tl.arange(0, PADDED)
    there = vectors < batch
    asks = there & (tl.load(count_ptr + vectors, mask=there, other=0) < 0)
    if tl.max(asks.to(tl.int32), 0) > 0:
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        mask = rows < outputs
        sums = tl.zeros([ROWS, PADDED], tl.float32)
        for start in range(0, inputs, COLUMNS):
            at = start + tl.arange(0, COLUMNS)
            x = tl.load(
                hidden_ptr + vectors[None, :] * inputs + at[:, None],
                mask=(at < inputs)[:, None] & there[None, :],
                other=0.0,
            )
            if UPCAST:
                x = x.to(tl.float32)
            sums += batch_products(
                values_ptr,
                scale_ptr,
                zero_ptr,
                has_zero,
                rows,
                mask,
                start,
                inputs,
                units,
                x,
                KIND,
                GROUP,
                ROWS,
                COLUMNS,
            )
        temperature = tl.load(temperature_ptr + vectors, mask=there, other=1.0)
        z = batch_finished(sums, scale_ptr, rows, mask, KIND) / temperature[None, :]
        word = tl.load(
            bits_ptr + vectors[None, :] * words + rows[:, None] // 32,
            mask=mask[:, None] & there[None, :],
            other=0,
        )
        largest, total, best, logit, chosen = fold(
            z,
            rows[:, None] + tl.zeros([ROWS, PADDED], tl.int32),
            ((word >> (rows[:, None] % 32)) & 1) > 0,
            tl.load(seed_ptr + vectors, mask=there, other=-1),
            tl.load(drawn_ptr + vectors * drawn_step, mask=there, other=0),
            LOWEST,
            NO_TOKEN,
        )
        part = vectors * parts + first_part + tl.program_id(0)
        keep(numbers_ptr, chosen_ptr, part, largest, total, best, logit, chosen, there, NUMBERS)


@cache
def all_kernel(kind: str, group: int, activations: str, one: bool) -> Kernel:
    """The kernel for such a head, of one sequence or more."""
    name = f"choose_all_{packed.label(kind, group, activations)}"
    if one:
        name, function = f"{name}_b1", choose_all_vector_kernel
        constants = packed.vector_constants(kind, group)
    else:
        name, function = f"{name}_b16", choose_all_batch_kernel
        constants = packed.batch_constants(kind, group)
    return folding(packed.kernel_of(name, function, _ARGUMENTS, constants, activations))


KERNELS: tuple[Kernel, ...] = tuple(
    all_kernel(*built, "bf16", one) for one in (True, False) for built in packed.BUILT
)
