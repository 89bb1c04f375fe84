"""Attention of one new token a sequence over its cached keys and values, which lie in blocks.

All query heads of a key head are read by one program, so a key is loaded once. A sequence's tokens
are split over programs; each leaves the greatest score, the sum of weights and the weighted sum of
values of its part, and a second small kernel joins the parts in their order (Flash-Decoding, Dao et
al. 2023, by the arithmetic of Milakov and Gimelshein, arXiv:1805.02867). How many parts there are
depends on sizes alone, so a CUDA graph holds for all lengths: a program with no token to read ends
at once. Nothing is added in an order that changes: same inputs, same bits.

B sequences, G query heads a key head, D head_dim (64 or 128), S slots of the cache.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from conductor.errors import StartError
from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import INTERPRETED, jit, tl
from conductor_kernels.launch import launch
from conductor_kernels.ops import packed

BLOCK_TOKENS = 32
"""Tokens of one block, for the kernel: the runner's blocks, and TensorRT-LLM's."""
HEAD_DIMS = (64, 128)

_TILE = 64
"""Tokens that a program reads at once. Keys and values of 64 tokens are 32 KiB in bfloat16 at
head_dim 128: what an H200's SM has to have in flight (4.8 TB/s over about 0.8 us and 132 SMs)."""
_ROWS = 16
"""Query heads of a program, padded: the least that the tensor cores multiply."""
_MOST_SPLITS = 32
"""What the second kernel reads in one go; at 64 tokens each, 2,048 tokens are wholly spread."""
_PROGRAMS = 4 * 132
"""Aimed at: four to each SM of an H200, which hide one another's latency. Not measured."""
_LOG2_E = 1.4426950408889634


def attention_reference(
    query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor, lengths: Tensor, block_tokens: int
) -> Tensor:
    """What `attention` gives, in plain torch and float32."""
    batch, heads, head_dim = query.shape
    places = torch.arange(blocks.shape[1] * block_tokens, device=query.device)
    slots = blocks.long()[:, places // block_tokens] * block_tokens + places % block_tokens
    seen = (places < lengths[:, None])[:, :, None, None]
    slots = slots.where(seen[:, :, 0, 0], 0)
    key, value = keys[slots].float(), values[slots].float().where(seen, 0.0)
    grouped = query.float().view(batch, keys.shape[1], -1, head_dim)
    scores = torch.einsum("bkgd,btkd->btkg", grouped, key) * head_dim**-0.5
    # Without any token the softmax is of nothing, and is no number.
    weights = scores.where(seen, -torch.inf).softmax(1).where(seen, 0.0)
    attended = torch.einsum("btkg,btkd->bkgd", weights, value)
    return attended.reshape(batch, heads * head_dim).to(query.dtype)


@jit
def _tiles_of(length, splits, TILE: tl.constexpr):
    """Tiles of a sequence, and how many of them each split has."""
    tiles = (length + TILE - 1) // TILE
    return tiles, (tiles + splits - 1) // splits


@jit
def _split_kernel(
    query,
    keys,
    values,
    blocks,
    lengths,
    sums,
    greatest,
    totals,
    kv_heads,
    group,
    table,
    splits,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    SCALE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """One part of a sequence for up to ROWS query heads of a key head: grid (splits, key heads by
    ROWS query heads, B). `sums` [B, heads, splits, D] is not divided by `totals` [B, heads,
    splits]; `greatest` is in powers of two."""
    split = tl.program_id(0)
    at = tl.program_id(1)
    sequence = tl.program_id(2)
    parts = (group + ROWS - 1) // ROWS
    kv_head = at // parts
    length = tl.load(lengths + sequence)
    tiles, each = _tiles_of(length, splits, TILE)
    first = split * each
    last = tl.minimum(first + each, tiles)
    if first >= last:
        return

    row = (at % parts) * ROWS + tl.arange(0, ROWS)
    real = row < group
    head = sequence * (kv_heads * group) + kv_head * group + row
    d = tl.arange(0, D)
    asked = tl.load(query + head[:, None] * D + d[None, :], mask=real[:, None], other=0.0)
    if UPCAST:
        asked = asked.to(tl.float32)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    gathered = tl.zeros([ROWS, D], tl.float32)
    for tile in range(first, last):
        token = tile * TILE + tl.arange(0, TILE)
        seen = token < length
        block = tl.load(blocks + sequence * table + token // BLOCK, mask=seen, other=0)
        slot = block.to(tl.int64) * BLOCK + token % BLOCK
        where = (slot * kv_heads + kv_head)[:, None] * D + d[None, :]
        key = tl.load(keys + where, mask=seen[:, None], other=0.0)
        value = tl.load(values + where, mask=seen[:, None], other=0.0)
        if UPCAST:
            key = key.to(tl.float32)
            value = value.to(tl.float32)
        scores = tl.dot(asked, tl.trans(key), input_precision="ieee") * SCALE
        scores = tl.where(seen[None, :], scores, float("-inf"))
        above = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - above[:, None])
        shrink = tl.exp2(most - above)
        total = total * shrink + tl.sum(weights, 1)
        gathered = gathered * shrink[:, None]
        gathered = tl.dot(weights.to(value.dtype), value, gathered, input_precision="ieee")
        most = above
    part = head * splits + split
    tl.store(sums + part[:, None] * D + d[None, :], gathered, mask=real[:, None])
    tl.store(greatest + part, most, mask=real)
    tl.store(totals + part, total, mask=real)


@jit
def _join_kernel(
    sums,
    greatest,
    totals,
    lengths,
    attended,
    splits,
    D: tl.constexpr,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One head of one sequence, of all its parts: grid (heads, B). What no program wrote is not
    read."""
    head = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    length = tl.load(lengths + tl.program_id(1))
    tiles, each = _tiles_of(length, splits, TILE)
    split = tl.arange(0, SPLITS)
    written = split * each < tiles
    part = head * splits + split
    d = tl.arange(0, D)
    gathered = tl.load(sums + part[:, None] * D + d[None, :], mask=written[:, None], other=0.0)
    most = tl.load(greatest + part, mask=written, other=float("-inf"))
    total = tl.load(totals + part, mask=written, other=0.0)
    weight = tl.exp2(most - tl.where(length > 0, tl.max(most, 0), 0.0))
    whole = tl.where(length > 0, tl.sum(weight * total, 0), 1.0)
    joined = tl.sum(weight[:, None] * gathered, 0) / whole
    tl.store(attended + head * D + d, joined.to(attended.dtype.element_ty))


@cache
def _specialised(kind: str, head_dim: int) -> tuple[Kernel, Kernel]:
    """The two kernels for queries and caches of that type."""
    split = Kernel(
        name=f"{packed.label('attention_split', 0, kind)}_d{head_dim}",
        function=_split_kernel,
        signature={
            **dict.fromkeys(("query", "keys", "values"), f"*{kind}"),
            **dict.fromkeys(("blocks", "lengths"), "*i32"),
            **dict.fromkeys(("sums", "greatest", "totals"), "*fp32"),
            **dict.fromkeys(("kv_heads", "group", "table", "splits"), "i32"),
        },
        constants={
            "D": head_dim,
            "ROWS": _ROWS,
            "TILE": _TILE,
            "BLOCK": BLOCK_TOKENS,
            "SCALE": head_dim**-0.5 * _LOG2_E,
            "UPCAST": INTERPRETED,
        },
        divisible=frozenset(("query", "keys", "values", "sums", "greatest", "totals")),
        stages=1,
        reads=frozenset(("keys", "values")),
    )
    join = Kernel(
        name=f"{packed.label('attention_join', 0, kind)}_d{head_dim}",
        function=_join_kernel,
        signature={
            **dict.fromkeys(("sums", "greatest", "totals"), "*fp32"),
            "lengths": "*i32",
            "attended": f"*{kind}",
            "splits": "i32",
        },
        constants={"D": head_dim, "TILE": _TILE, "SPLITS": _MOST_SPLITS},
        divisible=frozenset(("sums", "greatest", "totals", "attended")),
    )
    return split, join


KERNELS: tuple[Kernel, ...] = tuple(
    kernel for head_dim in HEAD_DIMS for kernel in _specialised("bf16", head_dim)
)


def splits_for(batch: int, kv_heads: int, tokens: int) -> int:
    """Into how many parts sequences of at most `tokens` tokens are split."""
    wanted = max(1, _PROGRAMS // (batch * kv_heads))
    return min(wanted, _MOST_SPLITS, -(-tokens // _TILE))


def _launch(query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor, lengths: Tensor) -> Tensor:
    batch, heads, head_dim = query.shape
    kv_heads, table = keys.shape[1], blocks.shape[1]
    group = heads // kv_heads
    splits = splits_for(batch, kv_heads, table * BLOCK_TOKENS)
    sums = query.new_empty((batch, heads, splits, head_dim), dtype=torch.float32)
    greatest, totals = (sums.new_empty((batch, heads, splits)) for _ in range(2))
    attended = query.new_empty((batch, heads * head_dim))
    split, join = _specialised(packed.TYPES[query.dtype], head_dim)
    given = (query.contiguous(), keys, values, blocks.contiguous(), lengths.contiguous())
    launch(
        split,
        (splits, kv_heads * -(-group // _ROWS), batch),
        (*given, sums, greatest, totals, kv_heads, group, table, splits),
    )
    launch(join, (heads, batch), (sums, greatest, totals, given[-1], attended, splits))
    return attended


def _check(query: Tensor, keys: Tensor, values: Tensor, block_tokens: int) -> None:
    """Raises `StartError` for what no kernel reads."""
    if block_tokens != BLOCK_TOKENS or query.shape[-1] not in HEAD_DIMS:
        raise StartError(
            f"the kernels attend in heads of {HEAD_DIMS} and blocks of {BLOCK_TOKENS} tokens: "
            "serve this model on the CPU"
        )
    if not (keys.is_contiguous() and values.is_contiguous()):
        raise StartError("the kernels read a cache without gaps")
    if not query.dtype == keys.dtype == values.dtype in packed.TYPES:
        raise StartError("the kernels read queries and a cache of one floating type, up to 32 bits")


@torch.library.custom_op("conductor::attention", mutates_args=())
def attention(
    query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor, lengths: Tensor, block_tokens: int
) -> Tensor:
    """Softmax attention, scaled by one over the root of D, of each sequence's new token.

    `query` [B, heads, D] and `keys`, `values` [S, kv_heads, D] in one floating type and without
    gaps. `blocks` [B, M] int32 has the sequences' blocks in order; token t of a sequence lies in
    slot blocks[t // block_tokens] * block_tokens + t % block_tokens. `lengths` [B] int32 counts the
    tokens seen, the new one included; entries of the table beyond them are not read.
    Gives [B, heads * D], zeros for a sequence of length 0. Raises `StartError` on a GPU for sizes
    that no kernel has.
    """
    if not (query.is_cuda or INTERPRETED):
        return attention_reference(query, keys, values, blocks, lengths, block_tokens)
    _check(query, keys, values, block_tokens)
    return _launch(query, keys, values, blocks, lengths)


@attention.register_fake
def _(
    query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor, lengths: Tensor, block_tokens: int
) -> Tensor:
    return query.new_empty((query.shape[0], query.shape[1] * query.shape[2]))
