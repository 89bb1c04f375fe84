"""What launchers share about the matrices that `tiles.py` reads: types, tile sizes, arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from conductor.errors import StartError
from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import INTERPRETED
from conductor_kernels.matrix import kind_of
from conductor_kernels.ops.tiles import stored

TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
"""Triton's names of what activations may be."""
BUILT = (("dense", 0), ("int8", 0), ("fp8", 0), ("int4", 32), ("int4", 64), ("int4", 128))
"""Kind and group of the matrices that kernels are compiled for ahead of time, in bfloat16. Triton
compiles other groups and types at their first launch, where it is there."""

VECTOR_COLUMNS = {"dense": 512, "int8": 1024, "fp8": 1024, "int4": 2048}
"""A tile of 8 rows is 8 KiB (16 of float32): four loads of 16 bytes in each of 128 threads. An
H200's SM needs about 30 KiB in flight (4.8 TB/s over 0.8 us and 132 SMs), which four programs of
that size are; more rows would cost registers, fewer would read x more often. Not measured."""
VECTOR_ROWS = 8
BATCH_COLUMNS = {"dense": 64, "int8": 128, "fp8": 128, "int4": 128}
"""64 rows of 128 bytes (int4 64) a step, of which `STAGES` are loaded ahead. Of int4 that is up to
four groups: one of 32 alone would leave 128 threads no 16 bytes each. Not measured."""
BATCH_ROWS = 64
"""What a warp group of sm_90 multiplies at once; 16 rows a warp before that."""
PADDED = 16
"""Vectors of a batch as the tensor cores multiply them, those that are not there as zeros."""
STAGES = 3

_LEAST_GROUP, _MOST_GROUP = 32, 1024
"""From the weights of 16 bytes, so that what a thread loads at once has one scale, to a tile."""
_LEAST_INPUTS = 64


def kernel_of(
    name: str, function: Any, arguments: str, constants: Mapping[str, Any], activations: str
) -> Kernel:
    """A kernel whose arguments, in order, are named by what they are; constants have its KIND."""
    dense = constants["KIND"] == "dense"
    told = {
        "values_ptr": f"*{activations}" if dense else "*i32",
        "scale_ptr": "*fp32",
        "zero_ptr": "*fp32",
        "partial_ptr": "*fp32",
        "eps": "fp32",
    }
    names = arguments.split()
    usual = {name: f"*{activations}" if name.endswith("_ptr") else "i32" for name in names}
    return Kernel(
        name=name,
        function=function,
        signature={argument: told.get(argument, usual[argument]) for argument in names},
        constants=constants,
        divisible=frozenset(n for n in names if n.endswith("_ptr") or n == "inputs"),
        stages=STAGES if "PADDED" in constants else 1,
        reads=frozenset({"values_ptr"}),
    )


def label(kind: str, group: int, activations: str) -> str:
    """Part of a kernel's name: `int4_g64`, and the type of activations unless it is bfloat16."""
    name = f"{kind}_g{group}" if group else kind
    return name if activations == "bf16" else f"{name}_{activations}"


def vector_constants(kind: str, group: int, rows: int = VECTOR_ROWS) -> dict[str, Any]:
    """Constants of a kernel for one vector, whose tile has as many bytes for any number of rows."""
    columns = VECTOR_COLUMNS[kind] * VECTOR_ROWS // rows
    return {"KIND": kind, "GROUP": group, "ROWS": rows, "COLUMNS": columns}


def batch_constants(kind: str, group: int) -> dict[str, Any]:
    """Constants of a kernel for a batch."""
    columns = BATCH_COLUMNS[kind]
    tile = {"KIND": kind, "GROUP": group, "ROWS": BATCH_ROWS, "COLUMNS": columns}
    # Triton's interpreter cannot compute in bfloat16.
    return {**tile, "PADDED": PADDED, "UPCAST": INTERPRETED}


def matrix_arguments(
    values: Tensor, scale: Tensor | None, zero: Tensor | None, unused: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """values_ptr, scale_ptr, zero_ptr and has_zero of a kernel; `unused`, float32, for what is
    none."""
    return (
        stored(values.contiguous()),
        unused if scale is None else scale.contiguous(),
        unused if zero is None else zero.contiguous(),
        int(zero is not None),
    )


def specialise(x: Tensor, values: Tensor, group: int) -> tuple[str, int, str]:
    """Kind, group (0 unless int4) and activations' type that a kernel has to be for.

    Raises `StartError` for what no kernel can read.
    """
    kind = kind_of(values)
    inputs = x.shape[1]
    if inputs % _LEAST_INPUTS or x.dtype not in TYPES:
        raise StartError(
            f"the kernels multiply {_LEAST_INPUTS} inputs at a time, in a floating type of 16 or "
            f"32 bits; a matrix has {inputs}, in {x.dtype}: serve this model on the CPU"
        )
    if kind != "int4":
        return kind, 0, TYPES[x.dtype]
    if not _LEAST_GROUP <= group <= _MOST_GROUP or group & (group - 1):
        raise StartError(
            f"the kernels read int4 in groups of {_LEAST_GROUP}, 64, 128 and on to {_MOST_GROUP}, "
            f"not {group}: export the bundle again with --group 128"
        )
    return kind, group, TYPES[x.dtype]
