"""What reading a prompt is made of: operations on many tokens of a sequence, in plain torch.

They are cut as the kernels for one token a sequence are (`conductor_kernels.ops`), and give the
same for one token. Matrices may be packed: each is unpacked for its product and not kept.

T tokens of a step, of all its sequences one after the other; H hidden, D head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from conductor_kernels.matrix import Matrix
from conductor_kernels.runner.cache import Cache
from conductor_kernels.runner.step import Span, Step
from conductor_kernels.runner.weights import Layer


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x` over its root mean square, times `weight`: [T, H]. Computed in float32, as trained
    (Zhang and Sennrich, arXiv:1910.07467)."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def project(x: Tensor, matrix: Matrix, bias: Tensor | None = None) -> Tensor:
    """`x` [T, I] times the matrix, plus the bias: [T, O]."""
    if matrix.scale is None or matrix.kind == "int4":
        return functional.linear(x, matrix.dense().to(x.dtype), bias)
    # Whole numbers of 8 bits, and those of fp8, are exact in any type here. To scale what comes
    # out of the product moves an eighth of the bytes of unpacking.
    made = functional.linear(x, matrix.values.to(x.dtype)) * matrix.scale[:, 0].to(x.dtype)
    return made if bias is None else made + bias


def project_queries(
    x: Tensor, layer: Layer, number: int, step: Step, cache: Cache, eps: float
) -> Tensor:
    """Norm, query, key and value, rotation; keys and values go into the cache at the step's slots.
    Gives the queries [T, heads, D]."""
    shape = cache.shape
    made = project(rms_norm(x, layer.input_norm, eps), layer.qkv, layer.qkv_bias)
    heads = made.view(len(x), -1, shape.head_dim)
    query, key, value = torch.split(heads, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
    cache.write(number, step.slots, _rotate(key, step), value)
    return _rotate(query, step)


def attend(query: Tensor, number: int, step: Step, cache: Cache) -> Tensor:
    """Each token's attention over all before it in its sequence and itself: [T, heads x D]."""
    parts = [_attend_span(query, number, span, cache) for span in step.spans]
    return torch.cat(parts).flatten(1)


def add_projected(x: Tensor, attended: Tensor, layer: Layer) -> Tensor:
    """The residual plus the projected attention: [T, H]."""
    return x + project(attended, layer.out, layer.out_bias)


def add_mlp(x: Tensor, layer: Layer, eps: float) -> Tensor:
    """The residual plus SwiGLU of the normed input (Shazeer, arXiv:2002.05202): [T, H]."""
    both = project(rms_norm(x, layer.inner_norm, eps), layer.gate_up)
    gate, up = both.chunk(2, dim=-1)
    return x + project(functional.silu(gate) * up, layer.down)


def _rotate(x: Tensor, step: Step) -> Tensor:
    """Pairs of halves turned by their position: [T, heads, D]."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * step.cosines[:, None] + turned * step.sines[:, None]


def _attend_span(query: Tensor, number: int, span: Span, cache: Cache) -> Tensor:
    key, value = cache.read(number, span.blocks, span.end)
    rows = query[span.rows].transpose(0, 1)[None]
    new = rows.shape[2]
    mask = None
    if new > 1:
        seen = torch.ones(new, span.end, dtype=torch.bool, device=query.device)
        mask = seen.tril(span.end - new)
    attended = functional.scaled_dot_product_attention(
        rows, key.transpose(0, 1)[None], value.transpose(0, 1)[None], mask, enable_gqa=True
    )
    return attended[0].transpose(0, 1)
