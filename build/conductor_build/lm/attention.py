"""Attention over keys that many rows share and keys of their own, as one exact softmax.

The tokens of all rows stand packed one after the other. Attention over each stretch of keys is done
by itself: over a shared stretch with the queries of all its rows at once, so that its keys are read
once and never copied; over a row's own keys row by row. The parts are joined by their
log-sum-exps, which gives what a softmax over all keys together gives (Juravsky et al. 2024,
arXiv:2402.05099). Backwards every part needs only the joined output and log-sum-exp, as in ring
attention (Liu et al. 2023, arXiv:2310.01889), and a shared stretch's gradient comes out summed.

On the CPU each part is torch's flash kernel, which keeps no matrix of scores; elsewhere it is
written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

NAME = "conductor-shared"
"""What transformers knows this attention by."""


@dataclass(frozen=True)
class Layout:
    """Where the M packed tokens stand: N rows, the t newest tokens of each, L own keys of each."""

    rows: Tensor
    """[M] the row of each token."""
    slots: Tensor
    """[M] its place among the new tokens of its row."""
    count: int
    """N."""
    longest: int
    """t."""
    spans: tuple[tuple[int, int], ...]
    """For each shared stretch the packed tokens that see it: from, to before."""
    mask: Tensor
    """[N or 1, 1, t, L] what is added to the scores of own keys: 0 or minus infinity."""

    def padded(self, packed: Tensor) -> Tensor:
        """[M, ...] as [N, t, ...], zeros where a row has fewer."""
        if self.count == 1:
            return packed[None]
        out = packed.new_zeros(self.count, self.longest, *packed.shape[1:])
        out[self.rows, self.slots] = packed
        return out

    def packed(self, padded: Tensor) -> Tensor:
        """[N, t, ...] as [M, ...]."""
        return padded[0] if self.count == 1 else padded[self.rows, self.slots]


def attend(
    query: Tensor, own: tuple[Tensor, Tensor], shared: list[Tensor], layout: Layout, scale: float
) -> Tensor:
    """[M, heads, size]: what the queries, of that shape, read.

    `own` are keys and values [N, L, kv heads, size]; `shared` a key and a value
    [1, kv heads, S, size] for each span of the layout.
    """
    return _Attention.apply(query, *own, layout, scale, *shared)  # type: ignore[no-any-return, no-untyped-call]


class _Sides(NamedTuple):
    """What a part's gradient is worked out from, all with the queries' shape."""

    gradient: Tensor
    query: Tensor
    out: Tensor
    """Of all parts together, as the next one."""
    total: Tensor


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: Layout, scale: float,
        *shared: Tensor,
    ) -> Tensor:  # fmt: skip
        heads, kept = query.shape[1], key.shape[2]
        own = _folded(layout.padded(query), kept)
        mask = layout.mask.repeat_interleave(heads // kept, 2)
        out, log = _part(own, key.transpose(1, 2), value.transpose(1, 2), mask, scale)
        result = layout.packed(_unfolded(out, heads)).to(torch.float32)
        total = layout.packed(_unfolded(log[..., None], heads))
        for (start, end), one, other in zip(layout.spans, shared[::2], shared[1::2], strict=True):
            out, log = _part(_folded(query[None, start:end], kept), one, other, None, scale)
            _join(result[start:end], total[start:end], _unfolded(out, heads)[0],
                  _unfolded(log[..., None], heads)[0])  # fmt: skip
        joined = result.to(query.dtype)
        ctx.layout, ctx.scale = layout, scale
        ctx.save_for_backward(query, key, value, joined, total, *shared)
        return joined

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, total, *shared = ctx.saved_tensors
        layout, scale, heads, kept = ctx.layout, ctx.scale, query.shape[1], key.shape[2]
        sides = _Sides(gradient, query, out, total)
        mask = layout.mask.repeat_interleave(heads // kept, 2)
        padded = _Sides(*(_folded(layout.padded(one), kept) for one in sides))
        to_own, to_key, to_value = _part_backward(
            padded, key.transpose(1, 2), value.transpose(1, 2), mask, scale
        )
        to_query = layout.packed(_unfolded(to_own, heads)).clone()
        to_shared: list[Tensor | None] = []
        for place, (start, end) in enumerate(layout.spans):
            span = _Sides(*(_folded(one[None, start:end], kept) for one in sides))
            parts = _part_backward(span, shared[2 * place], shared[2 * place + 1], None, scale)
            to_query[start:end] += _unfolded(parts[0], heads)[0]
            to_shared += parts[1:]
        return to_query, to_key.transpose(1, 2), to_value.transpose(1, 2), None, None, *to_shared


def _join(out: Tensor, total: Tensor, more: Tensor, log: Tensor) -> None:
    """Take another part into `out` [m, heads, size] and `total` [m, heads, 1], in place."""
    joined = torch.logaddexp(total, log)
    out.mul_((total - joined).exp()).add_(more * (log - joined).exp())
    total.copy_(joined)


def _folded(x: Tensor, kept: int) -> Tensor:
    """[n, t, heads, size] as [n, kv heads, t x heads a kv head, size]: queries that read the same
    keys beside each other."""
    count, length, heads, size = x.shape
    grouped = x.reshape(count, length, kept, heads // kept, size)
    return grouped.transpose(1, 2).reshape(count, kept, length * (heads // kept), size)


def _unfolded(x: Tensor, heads: int) -> Tensor:
    """The way back from `_folded`."""
    count, kept, _, size = x.shape
    grouped = x.reshape(count, kept, -1, heads // kept, size)
    return grouped.transpose(1, 2).reshape(count, -1, heads, size)


# -- one part -------------------------------------------------------------------------------------


def _part(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    *,
    written_out: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention and its log-sum-exp, of [n, heads, t, size] over [n, heads, S, size]."""
    if query.device.type == "cpu" and not written_out:
        bias = None if mask is None else mask.to(query.dtype)
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(  # type: ignore[no-any-return]
            query, key, value, 0.0, False, attn_mask=bias, scale=scale
        )
    score = _score(query, key, mask, scale)
    log = torch.logsumexp(score, -1)
    return (score - log[..., None]).exp().to(value.dtype) @ value, log


def _part_backward(
    sides: _Sides,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    *,
    written_out: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value of a part, all folded as for `_part`."""
    gradient, query, out, total = sides
    if query.device.type == "cpu" and not written_out:
        bias = None if mask is None else mask.to(query.dtype)
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(  # type: ignore[no-any-return]
            gradient, query, key, value, out, total[..., 0].contiguous(), 0.0, False,
            attn_mask=bias, scale=scale,
        )  # fmt: skip
    weight = (_score(query, key, mask, scale) - total).exp()
    felt = (gradient @ value.transpose(-1, -2)).to(torch.float32)
    spread = (gradient * out).to(torch.float32).sum(-1, keepdim=True)
    to_score = (weight * (felt - spread) * scale).to(query.dtype)
    to_value = weight.to(gradient.dtype).transpose(-1, -2) @ gradient
    return to_score @ key, to_score.transpose(-1, -2) @ query, to_value


def _score(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    score = (query @ key.transpose(-1, -2)).to(torch.float32) * scale
    return score if mask is None else score + mask
