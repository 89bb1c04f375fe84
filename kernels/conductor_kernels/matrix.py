"""A weight matrix as the ops take it: in floating point, or packed in fewer bits.

    dense   w = values                  values [O, I] float32, bfloat16 or float16
    int8    w = scale values            values [O, I] int8, scale [O, 1] float32
    fp8     w = scale values            values [O, I] float8_e4m3fn, scale [O, 1] float32
    int4    w = scale (values - zero)   values [O, I / 2] uint8, the earlier input in the low half;
                                        scale, zero [O, I / group] float32; no zero means 8

The layout is the bundle's (`runner/packed.py`), so nothing is packed anew when it is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["dense", "int8", "fp8", "int4"]
_KINDS: dict[torch.dtype, Kind] = {
    torch.int8: "int8",
    torch.float8_e4m3fn: "fp8",
    torch.uint8: "int4",
}


@dataclass(frozen=True, eq=False)
class Matrix:
    """[O, I], see the top of this file. Ops that are torch's get its parts, in this order."""

    values: Tensor
    scale: Tensor | None = None
    zero: Tensor | None = None
    group: int = 0
    """Inputs that share a scale, of int4; else 0."""

    @property
    def kind(self) -> Kind:
        return kind_of(self.values)

    @property
    def rows(self) -> int:
        """O"""
        return self.values.shape[0]

    @property
    def inputs(self) -> int:
        """I"""
        return self.values.shape[1] * (2 if self.kind == "int4" else 1)

    def dense(self) -> Tensor:
        """The matrix itself: [O, I], in float32 if it is packed."""
        return dense(self.values, self.scale, self.zero, self.group)


def kind_of(values: Tensor) -> Kind:
    """How values of that type are packed."""
    return _KINDS.get(values.dtype, "dense")


def dense(values: Tensor, scale: Tensor | None, zero: Tensor | None, group: int) -> Tensor:
    """The matrix of these parts: [O, I]."""
    if scale is None:
        return values
    if kind_of(values) != "int4":
        return values.float() * scale.float()
    steps = torch.stack((values & 0xF, values >> 4), dim=2).flatten(1).float()
    group_of = torch.arange(steps.shape[1], device=values.device) // group
    middle = torch.full_like(scale, 8.0) if zero is None else zero
    return (steps - middle.float()[:, group_of]) * scale.float()[:, group_of]
