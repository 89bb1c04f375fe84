"""`x W^T`, with bias and residual, of few vectors and a matrix of `matrix.py`: bound by its bytes.

One vector goes to a kernel that multiplies in registers, more to one that multiplies on the tensor
cores. Where rows alone make too few programs to keep a GPU's memory busy, columns are split too,
and a second kernel joins the parts in their order: same inputs, same bits. The split depends on
sizes alone, so a CUDA graph holds.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import INTERPRETED
from conductor_kernels.launch import launch
from conductor_kernels.matrix import dense
from conductor_kernels.ops import packed
from conductor_kernels.ops.linear_kernels import (
    linear_batch_kernel,
    linear_join_kernel,
    linear_vector_kernel,
)
from conductor_kernels.ops.tiles import units

_FEWEST_PROGRAMS = 2 * 132
"""Two to each SM of an H200. With fewer, columns are split, for a second launch of about 1.3 us
(the price of a kernel in a CUDA graph). Not measured."""
_MOST_SPLITS = 8
_LEAST_STEPS = 2
"""Tiles that a part has at least."""
_JOINED = 512
"""Outputs of a program that joins: four in each thread."""


def linear_reference(
    x: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bias: Tensor | None,
    residual: Tensor | None,
) -> Tensor:
    """What `linear` gives, in plain torch."""
    matrix = dense(values, scale, zero, group)
    if matrix.dtype == x.dtype:
        y = functional.linear(x, matrix, bias)
    else:
        wide = None if bias is None else bias.float()
        y = functional.linear(x.float(), matrix.float(), wide)
    return (y if residual is None else residual + y).to(x.dtype)


_VECTOR = (
    "y_ptr partial_ptr x_ptr values_ptr scale_ptr zero_ptr has_zero bias_ptr has_bias residual_ptr "
    "has_residual outputs inputs units steps"
)
_BATCH = _VECTOR.replace("outputs", "batch outputs")


@cache
def _specialised(kind: str, group: int, activations: str, one: bool) -> Kernel:
    name = f"linear_{packed.label(kind, group, activations)}"
    if one:
        constants = packed.vector_constants(kind, group)
        return packed.kernel_of(f"{name}_b1", linear_vector_kernel, _VECTOR, constants, activations)
    constants = packed.batch_constants(kind, group)
    return packed.kernel_of(f"{name}_b16", linear_batch_kernel, _BATCH, constants, activations)


@cache
def _joining(activations: str) -> Kernel:
    pointers = ("y_ptr", "partial_ptr", "bias_ptr", "residual_ptr")
    return Kernel(
        name="linear_join" if activations == "bf16" else f"linear_join_{activations}",
        function=linear_join_kernel,
        signature={
            "y_ptr": f"*{activations}",
            "partial_ptr": "*fp32",
            "bias_ptr": f"*{activations}",
            "has_bias": "i32",
            "residual_ptr": f"*{activations}",
            "has_residual": "i32",
            "size": "i32",
            "outputs": "i32",
            "splits": "i32",
        },
        constants={"BLOCK": _JOINED},
        divisible=frozenset(pointers),
    )


KERNELS: tuple[Kernel, ...] = (
    *(_specialised(kind, group, "bf16", True) for kind, group in packed.BUILT),
    *(_specialised(kind, group, "bf16", False) for kind, group in packed.BUILT),
    _joining("bf16"),
)


def splits_for(programs: int, steps: int) -> int:
    """Into how many parts the columns are split, where rows make that many programs."""
    if programs >= _FEWEST_PROGRAMS:
        return 1
    wanted = -(-_FEWEST_PROGRAMS // programs)
    return max(1, min(wanted, _MOST_SPLITS, steps // _LEAST_STEPS))


def _launch(
    x: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bias: Tensor | None,
    residual: Tensor | None,
) -> Tensor:
    (batch, inputs), outputs = x.shape, values.shape[0]
    kernel = _specialised(*packed.specialise(x, values, group), batch == 1)
    tiles = -(-inputs // int(kernel.constants["COLUMNS"]))
    programs = -(-outputs // int(kernel.constants["ROWS"]))
    padded = -(-batch // packed.PADDED)
    steps = -(-tiles // splits_for(programs * padded, tiles))
    splits = -(-tiles // steps)
    y = x.new_empty((batch, outputs))
    room = (splits, batch, outputs) if splits > 1 else (1,)
    partial = x.new_empty(room, dtype=torch.float32)
    ending = (*_added(x, bias), *_added(x, residual))
    matrix = packed.matrix_arguments(values, scale, zero, partial)
    sizes = (outputs, inputs, units(values), steps)
    arguments = (y, partial, x.contiguous(), *matrix, *ending)
    if batch == 1:
        launch(kernel, (programs, splits), (*arguments, *sizes))
    else:
        launch(kernel, (programs, splits, padded), (*arguments, batch, *sizes))
    if splits > 1:
        blocks = -(-y.numel() // _JOINED)
        joining = _joining(packed.TYPES[x.dtype])
        launch(joining, (blocks,), (y, partial, *ending, y.numel(), outputs, splits))
    return y


def _added(x: Tensor, term: Tensor | None) -> tuple[Tensor, int]:
    """A term's pointer, and whether it is there."""
    return (x, 0) if term is None else (term.to(x.dtype).contiguous(), 1)


@torch.library.custom_op("conductor::linear", mutates_args=())
def linear(
    x: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bias: Tensor | None,
    residual: Tensor | None,
) -> Tensor:
    """x [B, I] times the matrix [O, I] of these parts (`matrix.py`), plus bias [O] and residual
    [B, O]: [B, O] in the type of x, summed in float32.

    On a GPU I is a multiple of 64, and int4 in groups of a power of two, 32 to 1024; raises
    `StartError` for others.
    """
    if x.is_cuda or INTERPRETED:
        return _launch(x, values, scale, zero, group, bias, residual)
    return linear_reference(x, values, scale, zero, group, bias, residual)


@linear.register_fake
def _(
    x: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bias: Tensor | None,
    residual: Tensor | None,
) -> Tensor:
    return x.new_empty((x.shape[0], values.shape[0]))
