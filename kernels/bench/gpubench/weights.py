"""Random weights, made packed: a 7B model in a few seconds, and none is ever unpacked.

Entries have a deviation of about 1 / sqrt(inputs), so that what flows through a model stays finite.
"""

from __future__ import annotations

import torch

from conductor_kernels.matrix import Matrix


def random_matrix(
    kind: str, rows: int, inputs: int, group: int, device: torch.device, dtype: torch.dtype
) -> Matrix:
    """[rows, inputs] of that kind; `group` is for int4, `dtype` for a dense one."""
    spread = inputs**-0.5
    if kind == "dense":
        values = torch.empty(rows, inputs, device=device, dtype=dtype).normal_(std=spread)
        return Matrix(values)
    if kind == "int4":
        values = torch.randint(0, 256, (rows, inputs // 2), device=device, dtype=torch.uint8)
        # The deviation of 16 equally likely steps is about 4.6.
        scale = torch.full((rows, inputs // group), spread / 4.6, device=device)
        return Matrix(values, scale, None, group)
    if kind == "int8":
        values = torch.randint(-127, 128, (rows, inputs), device=device, dtype=torch.int8)
        return Matrix(values, torch.full((rows, 1), spread / 73.3, device=device))
    values = torch.empty(rows, inputs, device=device, dtype=torch.bfloat16).normal_()
    packed = values.to(torch.float8_e4m3fn)
    return Matrix(packed, torch.full((rows, 1), spread, device=device))
