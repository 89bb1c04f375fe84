"""Weights in fewer bits: a small reference in plain torch, with the error that each may have.

    int8    per output channel, symmetric: w = s q, q in -127..127
    int4    per group of inputs, symmetric (q in -7..7) or with a zero point (w = s (q - z), q in
            0..15), two to a byte, the earlier input in the lower half
    fp8     e4m3 (Micikevicius et al. 2022, arXiv:2209.05433), one scale an output channel

Rounding is to nearest, so no error is larger than half a step: `bound`. Scales are rounded first
and then used, so that packing and unpacking see the same ones. A matrix is [outputs, inputs], as
torch keeps linear layers; the last group of inputs may be short.

Left out: files (`quantisedfile.py`), and anything that learns from data, such as GPTQ or AWQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from conductor_build.lm.merge import ExportError

Name = Literal["int8", "int4", "fp8"]
GROUP = 128
_FP8 = torch.float8_e4m3fn
_FP8_MOST = 448.0
_FP8_RELATIVE, _FP8_SMALLEST = 2.0**-4, 2.0**-10
"""Half of a last place of 3 bits, relative to the value, and half of the step below 2^-6."""


@dataclass(frozen=True)
class Scheme:
    """How matrices are stored. `group` and `symmetric` are for int4 alone."""

    name: Name
    group: int = GROUP
    symmetric: bool = True

    def __post_init__(self) -> None:
        if self.name not in get_args(Name) or self.group < 2 or self.group % 2:
            known = ", ".join(get_args(Name))
            raise ExportError(f"quantise by one of {known}, int4 in groups of an even number")


@dataclass(frozen=True)
class Packed:
    """One matrix. `values`: [O, I] int8 or e4m3, or [O, ceil(I / 2)] uint8 for int4.

    `scale`: [O, 1] float32, or [O, G] bfloat16 for int4. `zero`: [O, G] uint8, for int4 that is not
    symmetric.
    """

    values: Tensor
    scale: Tensor
    zero: Tensor | None
    inputs: int


def pack(weight: Tensor, scheme: Scheme) -> Packed:
    """A finite matrix [O, I] in fewer bits."""
    matrix = weight.detach().float()
    if scheme.name == "int4":
        return _pack_int4(matrix, scheme)
    most = _FP8_MOST if scheme.name == "fp8" else 127.0
    scale = _nonzero(matrix.abs().amax(1, keepdim=True) / most)
    scaled = (matrix / scale).clamp(-most, most)
    values = scaled.to(_FP8) if scheme.name == "fp8" else scaled.round().to(torch.int8)
    return Packed(values, scale, None, matrix.shape[1])


def unpack(packed: Packed, scheme: Scheme) -> Tensor:
    """What is computed with, [O, I] in float32."""
    if scheme.name != "int4":
        return packed.values.float() * packed.scale
    steps = _halves(packed.values)[:, : packed.inputs].float()
    zero = torch.tensor(8.0) if packed.zero is None else packed.zero.float()
    zero = zero.expand(packed.scale.shape)
    spread = _spread(packed.inputs, scheme.group, packed.scale.device)
    return (steps - zero[:, spread]) * packed.scale.float()[:, spread]


def bound(weight: Tensor, packed: Packed, scheme: Scheme) -> Tensor:
    """[O, I]: the most by which each unpacked value may differ from the weight, in exact sums."""
    scale = packed.scale.float()
    if scheme.name == "fp8":
        return torch.maximum(weight.float().abs() * _FP8_RELATIVE, scale * _FP8_SMALLEST)
    if scheme.name == "int4":
        scale = scale[:, _spread(packed.inputs, scheme.group, scale.device)]
    return (scale / 2).expand(weight.shape)


# -- int4 -----------------------------------------------------------------------------------------


def _pack_int4(matrix: Tensor, scheme: Scheme) -> Packed:
    inputs = matrix.shape[1]
    spread = _spread(inputs, scheme.group, matrix.device)
    low, high = _extremes(matrix, scheme.group)
    if scheme.symmetric:
        scale, zero = _rounded(torch.maximum(-low, high) / 7), None
        middle, bottom = torch.full_like(scale, 8), 1
    else:
        scale = _rounded((high - low) / 15)
        middle = (-low / scale).round().clamp(0, 15)
        zero, bottom = middle.to(torch.uint8), 0
    steps = (matrix / scale[:, spread]).round() + middle[:, spread]
    values = _nibbles(steps.clamp(bottom, 15).to(torch.uint8))
    return Packed(values, scale.to(torch.bfloat16), zero, inputs)


def _extremes(matrix: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Lowest and highest of each group [O, G], with 0 among them, which must stay exact."""
    parts = torch.split(matrix, group, 1)
    low = torch.cat([part.amin(1, keepdim=True) for part in parts], 1)
    high = torch.cat([part.amax(1, keepdim=True) for part in parts], 1)
    return low.clamp(max=0), high.clamp(min=0)


def _spread(inputs: int, group: int, device: torch.device) -> Tensor:
    """[I] the group of each input."""
    return torch.arange(inputs, device=device) // group


def _rounded(scale: Tensor) -> Tensor:
    """As it is stored, never smaller: else the largest weights would lie beyond the last step."""
    near = scale.to(torch.bfloat16)
    above = (near.view(torch.int16) + 1).view(torch.bfloat16)
    return _nonzero(torch.where(near.float() < scale, above, near).float())


def _nonzero(scale: Tensor) -> Tensor:
    """1 where all weights are 0 (or too small to count), so that nothing is divided by 0."""
    return torch.where(scale > torch.finfo(torch.float32).tiny, scale, torch.ones_like(scale))


def _nibbles(steps: Tensor) -> Tensor:
    if steps.shape[1] % 2:
        steps = torch.nn.functional.pad(steps, (0, 1))
    return steps[:, 0::2] | (steps[:, 1::2] << 4)


def _halves(values: Tensor) -> Tensor:
    return torch.stack([values & 0xF, values >> 4], 2).flatten(1)
