"""Checks of what a layer does with its cache: `qkv` writes keys and values, `attention` reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from conductor_kernels.checks.case import DTYPES, Case, bound_of, name_of, relative
from conductor_kernels.checks.matrices import KINDS, Made, make
from conductor_kernels.checks.products import EPS, generator, normed, numbers

BLOCK = 32


@dataclass(frozen=True)
class Heads:
    """Of a layer: query heads, key and value heads, and the size of each."""

    query: int
    shared: int
    size: int

    def __str__(self) -> str:
        return f"{self.query}/{self.shared} heads of {self.size}"


_HEADS = (Heads(28, 4, 128), Heads(14, 2, 64), Heads(9, 3, 64), Heads(32, 8, 128))
"""Qwen2.5 7B and 0.5B, SmolLM2 135M, Llama 3 8B."""
_LENGTHS = {False: (0, 1, 31, 32, 33, 70), True: (1_500, 0, 1_499, 4_096)}
_QKV = ((1, 64), (2, 192), (5, 128), (16, 64))
"""Batch and hidden."""


def cases() -> Iterator[Case]:
    """All of them. Attention rounds its chances and what comes out; `qkv` the two of the norm, the
    product with its bias, and both halves of a rotation."""
    for dtype in DTYPES:
        for heads in _HEADS:
            for large, lengths in _LENGTHS.items():
                name = f"{name_of(dtype)}, {heads}, lengths {' '.join(map(str, lengths))}"
                measure = partial(_attention, dtype, heads, lengths)
                yield Case("attention", name, dtype, bound_of(dtype, 2), measure, large)
        for kind in KINDS:
            for heads, (batch, hidden) in zip(_HEADS, _QKV, strict=True):
                name = f"{kind}, {name_of(dtype)}, {heads}, batch {batch}, hidden {hidden}"
                measure = partial(_qkv, kind, dtype, heads, batch, hidden)
                yield Case("qkv", name, dtype, bound_of(dtype, 5), measure)
            name = f"{kind}, {name_of(dtype)}, {_HEADS[0]}, batch 1, hidden 3584"
            measure = partial(_qkv, kind, dtype, _HEADS[0], 1, 3584)
            yield Case("qkv", name, dtype, bound_of(dtype, 5), measure, True)


# -- attention --------------------------------------------------------------------------------


def _attention(
    dtype: torch.dtype, heads: Heads, lengths: tuple[int, ...], device: torch.device, seed: int
) -> float:
    from conductor_kernels.ops.attention import attention

    random = generator(device, seed)
    most = max(1, math.ceil(max(lengths) / BLOCK))
    blocks = torch.randperm(len(lengths) * most, generator=random, device=device)
    table = blocks.view(len(lengths), most).int()
    sizes = (blocks.numel() * BLOCK, heads.shared, heads.size)
    keys, values = numbers(random, dtype, *sizes), numbers(random, dtype, *sizes)
    query = numbers(random, dtype, len(lengths), heads.query, heads.size)
    said = torch.tensor(lengths, device=device, dtype=torch.int32)
    got = attention(query, keys, values, table, said, BLOCK)
    rows = [
        attended(query[at], _in_order(keys, table[at], n), _in_order(values, table[at], n))
        for at, n in enumerate(lengths)
    ]
    return relative(got, torch.stack(rows))


def _in_order(kept: Tensor, blocks: Tensor, length: int) -> Tensor:
    """One sequence's keys or values [length, heads, D], token by token."""
    at = torch.arange(length, device=kept.device)
    return kept[blocks.long()[at // BLOCK] * BLOCK + at % BLOCK]


def attended(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """[heads x D] in float64: one token's attention; zeros where it sees nothing."""
    heads, size = query.shape
    if not len(keys):
        return torch.zeros(heads * size, device=query.device, dtype=torch.float64)
    share = heads // keys.shape[1]
    wide_keys = keys.double().repeat_interleave(share, dim=1)
    wide_values = values.double().repeat_interleave(share, dim=1)
    scores = torch.einsum("hd,thd->ht", query.double(), wide_keys) / size**0.5
    return torch.einsum("ht,thd->hd", scores.softmax(-1), wide_values).flatten()


# -- qkv --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Layer:
    """Inputs of one call."""

    made: Made
    norm: Tensor
    bias: Tensor | None
    cosines: Tensor
    sines: Tensor
    positions: Tensor
    slots: Tensor


def _qkv(
    kind: str,
    dtype: torch.dtype,
    heads: Heads,
    batch: int,
    hidden: int,
    device: torch.device,
    seed: int,
) -> float:
    """The worst of four: queries, the sum, what was written, and whether all else is as it was."""
    from conductor_kernels.ops.qkv import qkv

    random = generator(device, seed)
    layer = _layer(kind, dtype, heads, batch, hidden, random)
    x = numbers(random, dtype, batch, hidden)
    delta = numbers(random, dtype, batch, hidden) if batch != 2 else None
    sizes = (2 * batch + 3, heads.shared, heads.size)
    before = [numbers(random, dtype, *sizes) for _ in range(2)]
    keys, values = (one.clone() for one in before)
    query, total = qkv(
        x, delta, layer.norm, EPS, *layer.made.parts, layer.bias, layer.cosines, layer.sines,
        layer.positions, layer.slots, keys, values,
    )  # fmt: skip
    summed = x if delta is None else (x.double() + delta.double()).to(dtype)
    wanted = _wanted(summed, layer, heads)
    errors = [relative(total, summed.double()), relative(query, wanted[0])]
    errors += map(_written, (keys, values), before, wanted[1:], [layer.slots] * 2)
    return max(errors)


def _layer(
    kind: str,
    dtype: torch.dtype,
    heads: Heads,
    batch: int,
    hidden: int,
    random: torch.Generator,
) -> _Layer:
    device = random.device
    rows = (heads.query + 2 * heads.shared) * heads.size
    half = torch.randn(50, heads.size // 2, generator=random, device=device)
    angles = torch.cat((half, half), dim=1)
    slots = torch.randperm(2 * batch + 3, generator=random, device=device)[:batch].int()
    if batch > 1:
        slots[1] = -1
    return _Layer(
        make(kind, rows, hidden, dtype, random),
        1 + numbers(random, dtype, hidden) / 8,
        numbers(random, dtype, rows) if batch != 5 else None,
        angles.cos().to(dtype),
        angles.sin().to(dtype),
        torch.randint(50, (batch,), generator=random, device=device, dtype=torch.int32),
        slots,
    )


def _wanted(summed: Tensor, layer: _Layer, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value in float64, [B, heads, D] each."""
    made = normed(summed, layer.norm) @ layer.made.exact.T
    if layer.bias is not None:
        made = made + layer.bias.double()
    parts = made.view(len(summed), -1, heads.size)
    query, key, value = torch.split(parts, [heads.query, heads.shared, heads.shared], dim=1)
    return _turned(query, layer), _turned(key, layer), value


def _turned(x: Tensor, layer: _Layer) -> Tensor:
    """Element d and element d + D/2 of a head turned by their position's angle."""
    at = layer.positions.long()
    cosines, sines = layer.cosines[at].double()[:, None], layer.sines[at].double()[:, None]
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


def _written(after: Tensor, before: Tensor, wanted: Tensor, slots: Tensor) -> float:
    """Infinite where a slot changed that is nobody's."""
    used = slots >= 0
    at = slots[used].long()
    others = torch.ones(len(before), dtype=torch.bool, device=before.device)
    others[at] = False
    if not torch.equal(after[others], before[others]):
        return math.inf
    return relative(after[at], wanted[used])
