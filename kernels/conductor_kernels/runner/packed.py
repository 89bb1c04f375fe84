"""Matrices that a bundle stores in fewer bits: their layout, and what is computed with.

    quantisation.json    {"version", "scheme", "group", "symmetric", "tensors": {NAME: {"shape",
                         "dtype"}}}; beside it stand NAME.packed, NAME.scale and maybe NAME.zero

    int8, fp8   w = s q: values [O, I], one scale s an output row, [O, 1]
    int4        w = s (q - z): two q of 0..15 to a byte, the earlier input in its lower half; s and
                z by groups of inputs, [O, ceil(I / group)]; z is 8 where `symmetric`

On a GPU they stay packed, since there reading them is what takes the time. Without a kernel, a
product that unpacks its matrix takes 9 (int8), 32 (fp8) or 43 times (int4) as long as a plain one
(4,864 x 896, one thread), so on a CPU they are unpacked as they are loaded: a small file then takes
as much memory as a large one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conductor.errors import StartError
from conductor_kernels.matrix import Matrix, dense

LAYOUT = "quantisation.json"
VALUES, SCALE, ZERO = ".packed", ".scale", ".zero"
_VERSION = 1
_LEAST_GROUP = 32
"""As `conductor_kernels.ops.packed` says."""
_TYPES = {"int8": torch.int8, "int4": torch.uint8, "fp8": torch.float8_e4m3fn}


@dataclass(frozen=True)
class Layout:
    """How a checkpoint's packed matrices are to be read."""

    scheme: str
    group: int
    """Inputs that share a scale, of int4."""
    shapes: Mapping[str, tuple[int, int]]
    """[O, I] of each packed matrix, by its name."""

    def matrix(self, name: str, values: Tensor, scale: Tensor, zero: Tensor | None) -> Matrix:
        """The matrix as it is stored. Raises `StartError` for parts that do not fit."""
        rows, inputs = self.shapes[name]
        groups = -(-inputs // self.group) if self.scheme == "int4" else 1
        width = -(-inputs // 2) if self.scheme == "int4" else inputs
        fits = (
            values.shape == (rows, width)
            and values.dtype == _TYPES[self.scheme]
            and scale.shape == (rows, groups)
            and (zero is None or zero.shape == scale.shape)
        )
        if not fits:
            raise StartError(f"{name} is not packed as {LAYOUT} says: export the bundle again")
        middle = None if zero is None else zero.float()
        return Matrix(values, scale.float(), middle, self.group if self.scheme == "int4" else 0)

    def readable(self, name: str) -> bool:
        """Whether the kernels read the matrix as it is: its groups are of a size that they know,
        and none is shorter than the others."""
        group, inputs = self.group, self.shapes[name][1]
        known = group >= _LEAST_GROUP and group & (group - 1) == 0
        return self.scheme != "int4" or (known and inputs % group == 0)


def parts(matrix: Matrix) -> tuple[Tensor, Tensor | None, Tensor | None, int]:
    """As ops take a matrix."""
    return matrix.values, matrix.scale, matrix.zero, matrix.group


def unpacked(matrix: Matrix, inputs: int) -> Tensor:
    """[O, I] in float32. `inputs` is I: a last byte may hold one number only."""
    if matrix.kind != "int4" or matrix.scale is None or inputs % 2 == 0:
        return matrix.dense()
    # The half that is none may begin a group of its own, which has no scale.
    scale = torch.cat((matrix.scale, matrix.scale[:, -1:]), 1)
    zero = None if matrix.zero is None else torch.cat((matrix.zero, matrix.zero[:, -1:]), 1)
    return dense(matrix.values, scale, zero, matrix.group)[:, :inputs]


def stacked(matrices: Sequence[Matrix]) -> Matrix:
    """One matrix with the rows of all, which are packed alike or not at all."""
    if len({(one.kind, one.group, one.zero is None) for one in matrices}) > 1:
        return Matrix(torch.cat([one.dense() for one in matrices]))
    values = torch.cat([one.values for one in matrices])
    scales = [one.scale for one in matrices if one.scale is not None]
    zeros = [one.zero for one in matrices if one.zero is not None]
    return Matrix(
        values,
        torch.cat(scales) if scales else None,
        torch.cat(zeros) if zeros else None,
        matrices[0].group,
    )


def read_layout(folder: Path) -> Layout | None:
    """The layout of a checkpoint; None where nothing is packed. Raises `StartError`."""
    try:
        said: dict[str, Any] = json.loads((folder / LAYOUT).read_bytes())
        if said["version"] != _VERSION or said["scheme"] not in _TYPES:
            raise ValueError
        sizes = {name: tuple(map(int, told["shape"])) for name, told in said["tensors"].items()}
        shapes = {name: (rows, inputs) for name, (rows, inputs) in sizes.items()}
        group = int(said["group"])
        if group < 1:
            raise ValueError
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise StartError(
            f"{LAYOUT} cannot be read, or is of another version than {_VERSION}: export the bundle "
            "again"
        ) from None
    return Layout(said["scheme"], group, shapes)
