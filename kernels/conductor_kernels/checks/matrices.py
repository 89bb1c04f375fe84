"""Random matrices in every kind of packing, with what they are exactly.

Packed here anew, from whole numbers that are known before they are laid out, so that a fault in how
`matrix.py` or a kernel reads the layout is seen and not repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from conductor_kernels.matrix import Matrix

KINDS = ("dense", "int8", "fp8", "int4", "int4 with zeros")
GROUP = 64
_FP8_MOST = 448.0


@dataclass(frozen=True, eq=False)
class Made:
    """A random matrix."""

    matrix: Matrix
    exact: Tensor
    """[O, I] float64: what the packed numbers stand for."""
    original: Tensor
    """[O, I] float64: what was packed."""
    step: Tensor
    """[O, I] float64: most that packing changed each number by, half a step of its grid."""

    @property
    def parts(self) -> tuple[Tensor, Tensor | None, Tensor | None, int]:
        """As the ops take it: values, scale, zero, group."""
        return self.matrix.values, self.matrix.scale, self.matrix.zero, self.matrix.group


def make(kind: str, rows: int, inputs: int, dtype: torch.dtype, random: torch.Generator) -> Made:
    """[rows, inputs] with entries of about 1 / sqrt(inputs), on the generator's device. `dtype` is
    that of a dense one."""
    device = random.device
    weight = torch.randn(rows, inputs, generator=random, device=device) / inputs**0.5
    if kind == "dense":
        values = weight.to(dtype)
        exact = values.double()
        return Made(Matrix(values), exact, exact, exact.new_zeros(()).expand(rows, inputs))
    if kind in ("int8", "fp8"):
        return _by_rows(kind, weight)
    return _by_groups(weight, with_zeros=kind == "int4 with zeros")


def _by_rows(kind: str, weight: Tensor) -> Made:
    most = 127.0 if kind == "int8" else _FP8_MOST
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / most
    scaled = (weight / scale).clamp(-most, most)
    if kind == "int8":
        values = scaled.round().to(torch.int8)
        step = (scale.double() / 2).expand_as(weight)
    else:
        values = scaled.to(torch.float8_e4m3fn)
        # Half a last place of three bits, and below 2^-6 half of the fixed step there.
        step = torch.maximum(weight.abs().double() * 2.0**-4, scale.double() * 2.0**-10)
    exact = values.double() * scale.double()
    return Made(Matrix(values, scale), exact, weight.double(), step)


def _by_groups(weight: Tensor, *, with_zeros: bool) -> Made:
    rows, inputs = weight.shape
    groups = weight.view(rows, inputs // GROUP, GROUP)
    if with_zeros:
        low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
        scale = (high - low).clamp_min(1e-12) / 15
        zero: Tensor | None = (-low / scale).round().clamp(0, 15)
        middle = zero
    else:
        scale = groups.abs().amax(2).clamp_min(1e-12) / 7
        zero, middle = None, torch.full_like(scale, 8.0)
    assert middle is not None
    steps = ((groups / scale[:, :, None]).round() + middle[:, :, None]).clamp(0, 15)
    exact = (steps.double() - middle.double()[:, :, None]) * scale.double()[:, :, None]
    whole = steps.view(rows, inputs).to(torch.uint8)
    values = whole[:, 0::2] | (whole[:, 1::2] << 4)
    half = (scale.double() / 2)[:, :, None].expand_as(exact)
    return Made(
        Matrix(values.contiguous(), scale.contiguous(), zero, GROUP),
        exact.view(rows, inputs),
        weight.double(),
        half.reshape(rows, inputs),
    )
