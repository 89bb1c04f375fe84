"""Random packed matrices of every kind, and how far a result is from what it should be."""

from __future__ import annotations

import torch
from torch import Tensor

from conductor_kernels.matrix import Matrix

KINDS = ("dense", "int8", "fp8", "int4")


def drawn(kind: str, rows: int, inputs: int, group: int = 0, seed: int = 0) -> Matrix:
    """A matrix [rows, inputs] with every code of its kind in it, if it is large enough."""
    noise = torch.Generator().manual_seed(seed)
    if kind == "dense":
        return Matrix(torch.randn(rows, inputs, generator=noise))
    width = inputs // 2 if kind == "int4" else inputs
    codes = torch.randint(0, 256, (rows, width), generator=noise).to(torch.uint8)
    groups = -(-inputs // group) if kind == "int4" else 1
    scale = torch.rand(rows, groups, generator=noise) + 0.5
    if kind == "int4":
        zero = torch.randint(0, 16, (rows, groups), generator=noise).float()
        return Matrix(codes, scale, zero, group)
    if kind == "int8":
        return Matrix(codes.view(torch.int8), scale)
    numbers = codes.where((codes & 0x7F) != 0x7F, 0)  # those are no numbers
    return Matrix(numbers.view(torch.float8_e4m3fn), scale)


def parts(matrix: Matrix) -> tuple[Tensor, Tensor | None, Tensor | None, int]:
    """As ops take it."""
    return matrix.values, matrix.scale, matrix.zero, matrix.group


def off(found: Tensor, wanted: Tensor) -> float:
    """Relative error: root mean square of the differences over that of what is wanted."""
    difference = found.double() - wanted.double()
    return float(difference.norm() / wanted.double().norm())
