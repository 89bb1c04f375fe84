"""Checks of the ops that multiply by a weight matrix: `linear`, `gate_up`, and the norm before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from conductor_kernels.checks.case import DTYPES, Case, bound_of, name_of, relative
from conductor_kernels.checks.matrices import KINDS, Made, make

EPS = 1e-6
_SIZES = ((1, 129, 192), (2, 64, 64), (5, 33, 320), (16, 257, 128))
"""Batch, rows, inputs: odd rows, and inputs that are a multiple of 64 and of nothing larger."""
_LARGE = ((1, 3_584, 18_944), (16, 3_584, 3_584))
"""Qwen2.5-7B's down and out projections."""

_ROUNDINGS = {"rms_norm": 2, "linear": 3, "gate_up": 5}
"""Normed and weighted; product, bias and residual; those of the norm, both products, and what comes
of them."""


def cases() -> Iterator[Case]:
    """All of them."""
    for dtype in DTYPES:
        yield from _norms(dtype)
        for kind in KINDS:
            for large, sizes in ((False, _SIZES), (True, _LARGE)):
                for size in sizes:
                    yield from _of(kind, dtype, size, large)
    for kind in KINDS[1:]:
        name = f"{kind}, within half a step of what was packed"
        yield Case("linear", name, torch.float32, 1.0, partial(_quantised, kind))


def _of(kind: str, dtype: torch.dtype, size: tuple[int, int, int], large: bool) -> Iterator[Case]:
    batch, rows, inputs = size
    name = f"{kind}, {name_of(dtype)}, batch {batch}, {rows} x {inputs}"
    most, call = bound_of(dtype, _ROUNDINGS["linear"]), partial(_linear, kind, dtype, size)
    yield Case("linear", name, dtype, most, call, large)
    most, call = bound_of(dtype, _ROUNDINGS["gate_up"]), partial(_gate_up, kind, dtype, size)
    yield Case("gate_up", name, dtype, most, call, large)


def _norms(dtype: torch.dtype) -> Iterator[Case]:
    for batch, hidden in ((1, 64), (5, 192), (16, 3_584)):
        name = f"{name_of(dtype)}, batch {batch}, hidden {hidden}"
        most = bound_of(dtype, _ROUNDINGS["rms_norm"])
        yield Case("rms_norm", name, dtype, most, partial(_norm, dtype, batch, hidden))


def generator(device: torch.device, seed: int) -> torch.Generator:
    """Fresh numbers of that seed, drawn on that device."""
    return torch.Generator(device).manual_seed(seed)


def numbers(random: torch.Generator, dtype: torch.dtype, *sizes: int) -> Tensor:
    """Normal ones, rounded to the type."""
    return torch.randn(*sizes, generator=random, device=random.device).to(dtype)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm in float64."""
    wide = x.double()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * weight.double()


def _linear(
    kind: str, dtype: torch.dtype, size: tuple[int, int, int], device: torch.device, seed: int
) -> float:
    from conductor_kernels.ops.linear import linear

    batch, rows, inputs = size
    random = generator(device, seed)
    made, x = make(kind, rows, inputs, dtype, random), numbers(random, dtype, batch, inputs)
    bias, residual = numbers(random, dtype, rows), numbers(random, dtype, batch, rows)
    plain = x.double() @ made.exact.T
    return max(
        relative(linear(x, *made.parts, None, None), plain),
        relative(linear(x, *made.parts, bias, None), plain + bias.double()),
        relative(linear(x, *made.parts, bias, residual), plain + bias.double() + residual.double()),
    )


def _quantised(kind: str, device: torch.device, seed: int) -> float:
    """Error against the matrix that was packed, over the most that packing allows."""
    from conductor_kernels.ops.linear import linear

    random = generator(device, seed)
    made, x = make(kind, 65, 192, torch.float32, random), numbers(random, torch.float32, 3, 192)
    got = linear(x, *made.parts, None, None).double()
    apart = (got - x.double() @ made.original.T).abs()
    return float((apart / (x.double().abs() @ made.step.T)).max())


def _gate_up(
    kind: str, dtype: torch.dtype, size: tuple[int, int, int], device: torch.device, seed: int
) -> float:
    from conductor_kernels.ops.gate_up import gate_up

    batch, inner, hidden = size
    random = generator(device, seed)
    made, x = make(kind, 2 * inner, hidden, dtype, random), numbers(random, dtype, batch, hidden)
    norm = 1 + numbers(random, dtype, hidden) / 8
    return relative(gate_up(x, norm, EPS, *made.parts), gated(x, norm, made))


def gated(x: Tensor, norm: Tensor, made: Made) -> Tensor:
    """SwiGLU of the normed input, in float64 (Shazeer, arXiv:2002.05202)."""
    gate, up = (normed(x, norm) @ made.exact.T).chunk(2, dim=-1)
    return gate / (1 + torch.exp(-gate)) * up


def _norm(dtype: torch.dtype, batch: int, hidden: int, device: torch.device, seed: int) -> float:
    from conductor_kernels.ops.norm import rms_norm

    random = generator(device, seed)
    x, weight = numbers(random, dtype, batch, hidden), numbers(random, dtype, hidden)
    return relative(rms_norm(x, weight, EPS), normed(x, weight))
