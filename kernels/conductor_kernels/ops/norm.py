"""RMSNorm (Zhang and Sennrich, arXiv:1910.07467): rows over their root mean square, times a weight.

For one vector the norms inside a layer are prologues of the kernels that follow them; this one
stands before the head, and before products of a batch.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import INTERPRETED, jit, tl
from conductor_kernels.launch import launch
from conductor_kernels.ops.packed import TYPES

_BLOCK = 1024
"""Columns at a time: 16 bytes of bfloat16 in each of 128 threads. The second pass finds the row in
the cache nearest to it."""


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What `rms_norm` gives, in plain torch."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (weight * scaled.to(x.dtype)).to(x.dtype)


@jit
def _inverse_root(x_ptr, columns, eps, BLOCK: tl.constexpr):
    """1 over the root mean square of the row at `x_ptr`."""
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
        squares += x * x
    return tl.rsqrt(tl.sum(squares, 0) / columns + eps)


@jit
def _norm_kernel(y_ptr, x_ptr, weight_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    scale = _inverse_root(x_ptr + row, columns, eps, BLOCK)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = at < columns
        x = tl.load(x_ptr + row + at, mask=there, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=there, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + at, x * scale * weight, mask=there)


@cache
def _specialised(activations: str) -> Kernel:
    pointers = ("y_ptr", "x_ptr", "weight_ptr")
    return Kernel(
        name="rms_norm" if activations == "bf16" else f"rms_norm_{activations}",
        function=_norm_kernel,
        signature={**dict.fromkeys(pointers, f"*{activations}"), "columns": "i32", "eps": "fp32"},
        constants={"BLOCK": _BLOCK},
        divisible=frozenset((*pointers, "columns")),
    )


KERNELS: tuple[Kernel, ...] = (_specialised("bf16"),)


def launch_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`rms_norm` by its kernel."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    arguments = (y, x.contiguous(), weight.to(x.dtype).contiguous(), x.shape[1], eps)
    launch(_specialised(TYPES[x.dtype]), (x.shape[0],), arguments)
    return y


@torch.library.custom_op("conductor::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[B, H] in the type of x; computed in float32. `weight` is [H], of x's type.

    On a GPU H is a multiple of 16.
    """
    use = launch_norm if x.is_cuda or INTERPRETED else rms_norm_reference
    return use(x, weight, eps)


@rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.new_empty(x.shape)
