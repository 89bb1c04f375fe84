"""Matrices that a bundle stores in fewer bits: their layout, and what is computed with.

    quantisation.json    {"version", "scheme", "group", "symmetric", "tensors": {NAME: {"shape",
                         "dtype"}}}; beside it stand NAME.packed, NAME.scale and maybe NAME.zero

    int8, fp8   w = s q: values [O, I], one scale s an output row, [O, 1]
    int4        w = s (q - z): two q of 0..15 to a byte, the earlier input in its lower half; s and
                z by groups of inputs, [O, ceil(I / group)]; z is 8 where `symmetric`

The plain ops compute with whole numbers, so matrices are unpacked as they are loaded: a small file
then takes as much memory as a large one. Kernels that read the packed form take it from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conductor.errors import StartError

LAYOUT = "quantisation.json"
VALUES, SCALE, ZERO = ".packed", ".scale", ".zero"
_VERSION = 1
_TYPES = {"int8": torch.int8, "int4": torch.uint8, "fp8": torch.float8_e4m3fn}


@dataclass(frozen=True)
class Layout:
    """How a checkpoint's packed matrices are to be read."""

    scheme: str
    group: int
    """Inputs that share a scale, of int4."""
    shapes: Mapping[str, tuple[int, int]]
    """[O, I] of each packed matrix, by its name."""

    def unpacked(self, name: str, values: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
        """The matrix, [O, I] in float32. Raises `StartError` for parts that do not fit."""
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
        if self.scheme != "int4":
            return values.float() * scale.float()
        steps = torch.stack((values & 0xF, values >> 4), dim=2).flatten(1)[:, :inputs].float()
        middle = torch.full_like(scale, 8.0) if zero is None else zero
        group_of = torch.arange(inputs) // self.group
        return (steps - middle.float()[:, group_of]) * scale.float()[:, group_of]


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
