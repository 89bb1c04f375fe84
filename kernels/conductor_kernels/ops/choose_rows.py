"""The head over a sequence's listed rows only: what heads and fixed texts of a plan are chosen by.

Some hundred rows of 150,000 are read. Programs beyond the count, and all of them where nothing is
listed, leave at once, so that a captured graph can hold this beside `choose_all.py`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import jit, tl
from conductor_kernels.ops import packed
from conductor_kernels.ops.choose_fold import FOLDING, fold, keep
from conductor_kernels.ops.tiles import finished, no_products, products

ARGUMENTS = (
    "numbers_ptr chosen_ptr hidden_ptr values_ptr scale_ptr zero_ptr has_zero rows_ptr count_ptr "
    "temperature_ptr seed_ptr drawn_ptr drawn_step parts inputs units listed"
)
TYPES = {
    "numbers_ptr": "*fp32", "chosen_ptr": "*i32", "rows_ptr": "*i32", "bits_ptr": "*i32",
    "count_ptr": "*i32", "temperature_ptr": "*fp32", "seed_ptr": "*i64", "drawn_ptr": "*i32",
}  # fmt: skip
_ANYWHERE = frozenset({"count_ptr", "temperature_ptr", "seed_ptr", "drawn_ptr"})
"""Numbers of a sequence, which may lie among others."""


@jit
def choose_rows_kernel(
    numbers_ptr,
    chosen_ptr,
    hidden_ptr,
    values_ptr,
    scale_ptr,
    zero_ptr,
    has_zero,
    rows_ptr,
    count_ptr,
    temperature_ptr,
    seed_ptr,
    drawn_ptr,
    drawn_step,
    parts,
    inputs,
    units,
    listed,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    LOWEST: tl.constexpr,
    NO_TOKEN: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    """Grid (blocks of ROWS, sequences). `parts` partial choices of a sequence lie in a row."""
    one = tl.program_id(1)
    count = tl.load(count_ptr + one)
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if tl.program_id(0) * ROWS < count:
        mask = place < count
        rows = tl.load(rows_ptr + one * listed + place, mask=mask, other=0)
        sums = no_products(values_ptr, KIND, GROUP, ROWS, COLUMNS)
        for start in range(0, inputs, COLUMNS):
            at = start + tl.arange(0, COLUMNS)
            x = tl.load(hidden_ptr + one * inputs + at, mask=at < inputs, other=0.0)
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
        z = finished(tl.sum(sums, 1), scale_ptr, rows, mask, KIND)
        z = z / tl.load(temperature_ptr + one)
        largest, total, best, logit, chosen = fold(
            z[:, None],
            rows[:, None],
            mask[:, None],
            tl.load(seed_ptr + one) + tl.zeros([1], tl.int64),
            tl.load(drawn_ptr + one * drawn_step) + tl.zeros([1], tl.int32),
            LOWEST,
            NO_TOKEN,
        )
        part = one * parts + tl.program_id(0) + tl.zeros([1], tl.int32)
        keep(numbers_ptr, chosen_ptr, part, largest, total, best, logit, chosen, part >= 0, NUMBERS)


def folding(kernel: Kernel) -> Kernel:
    """A kernel of a matrix as one that folds: the types of its arguments, and its constants."""
    told = {name: TYPES.get(name, kind) for name, kind in kernel.signature.items()}
    constants = {**kernel.constants, **FOLDING}
    divisible = kernel.divisible - _ANYWHERE
    return replace(kernel, signature=told, constants=constants, divisible=divisible)


@cache
def rows_kernel(kind: str, group: int, activations: str) -> Kernel:
    """The kernel for such a head."""
    name = f"choose_rows_{packed.label(kind, group, activations)}"
    constants = packed.vector_constants(kind, group)
    return folding(packed.kernel_of(name, choose_rows_kernel, ARGUMENTS, constants, activations))


KERNELS: tuple[Kernel, ...] = tuple(rows_kernel(*built, "bf16") for built in packed.BUILT)
