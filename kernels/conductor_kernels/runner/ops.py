"""What a decode step is made of: five operations, here in plain torch.

They are cut where fused kernels are: each reads its weights once. `decoder.py` calls each of them
at one place, so that a kernel takes over by being called there instead; these stay as the reference
that it is tested against, and as what runs on a CPU.

T tokens of a step, of all its sequences one after the other; H hidden, D head_dim, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from conductor_kernels.runner.cache import Cache
from conductor_kernels.runner.step import Span, Step
from conductor_kernels.runner.weights import Layer


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x` over its root mean square, times `weight`: [T, H]. Computed in float32, as trained
    (Zhang and Sennrich, arXiv:1910.07467)."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def project_queries(
    x: Tensor, layer: Layer, number: int, step: Step, cache: Cache, eps: float
) -> Tensor:
    """Norm, query, key and value, rotation; keys and values go into the cache at the step's slots.
    Gives the queries [T, heads, D]."""
    shape = cache.shape
    made = functional.linear(rms_norm(x, layer.input_norm, eps), layer.qkv, layer.qkv_bias)
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
    return x + functional.linear(attended, layer.out, layer.out_bias)


def add_mlp(x: Tensor, layer: Layer, eps: float) -> Tensor:
    """The residual plus SwiGLU of the normed input (Shazeer, arXiv:2002.05202): [T, H]."""
    both = functional.linear(rms_norm(x, layer.inner_norm, eps), layer.gate_up)
    gate, up = both.chunk(2, dim=-1)
    return x + functional.linear(functional.silu(gate) * up, layer.down)


def choose(
    hidden: Tensor,
    head: Tensor,
    masks: Tensor,
    temperatures: Tensor,
    drawn: Sequence[Tensor | None],
) -> tuple[Tensor, Tensor]:
    """The next token of B sequences, and its log-probability among the allowed tokens: [B] each.

    `hidden` is normed [B, H], `masks` [B, V] says what is allowed, `temperatures` is [B]. `drawn`
    has for each sequence [V] exponential numbers, of which a draw is made: the least number over
    its token's chance wins (Gumbel's trick); None takes the likeliest.
    A sequence whose numbers are none gets a log-probability that is none.
    """
    logits = functional.linear(hidden, head).float() / temperatures[:, None]
    scores = logits.masked_fill(~masks, -torch.inf).log_softmax(-1)
    picks = [_pick(row, numbers) for row, numbers in zip(scores, drawn, strict=True)]
    chosen = torch.stack(picks)
    return chosen, scores.gather(1, chosen[:, None])[:, 0]


def _pick(scores: Tensor, numbers: Tensor | None) -> Tensor:
    return (scores if numbers is None else scores - numbers.log()).argmax()


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
