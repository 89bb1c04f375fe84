"""What a layer does before it attends: residual, norm, query, key and value, rotation, cache.

One product of the three matrices, which stand in one; keys and values go into the cache without a
further pass over them, and the residual's new value is written out for the layer's second half.

B sequences of one new token each, H hidden, Q = heads x D query rows and K = kv_heads x D key rows,
D head_dim (64 or 128), S slots of the cache, P positions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from conductor.errors import StartError
from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import INTERPRETED
from conductor_kernels.launch import launch
from conductor_kernels.ops import packed
from conductor_kernels.ops.linear import linear_reference
from conductor_kernels.ops.norm import rms_norm_reference
from conductor_kernels.ops.qkv_kernels import qkv_batch_kernel, qkv_norm_kernel, qkv_vector_kernel
from conductor_kernels.ops.tiles import units

HEAD_DIMS = (64, 128)

_VECTOR_ROWS = packed.VECTOR_ROWS
"""Of a sole sequence's programs: 576 for a 7B model's 4,608 rows, about four to each SM."""
_FEWER = {"int4": 2}
"""By how much their tiles are narrower than `linear`'s: with all columns int4 took 158 registers
beside x and its squares, so 96."""
_BATCH_ROWS = 32
"""Of a batch's programs: half a head of 64. A 7B model has 4,608 rows, so 144 programs, about one
to each SM of an H200. Not measured."""
_BATCH_COLUMNS = 128
"""More than `linear` reads a step, as an SM has one program here. Not measured."""
_NORM_COLUMNS = 1024


def qkv_reference(
    x: Tensor,
    delta: Tensor | None,
    norm: Tensor,
    eps: float,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bias: Tensor | None,
    cosines: Tensor,
    sines: Tensor,
    positions: Tensor,
    slots: Tensor,
    keys: Tensor,
    values_cache: Tensor,
) -> tuple[Tensor, Tensor]:
    """What `qkv` does, in plain torch."""
    added = x.clone() if delta is None else x + delta
    normed = rms_norm_reference(added, norm, eps)
    made = linear_reference(normed, values, scale, zero, group, bias, None)
    kv_heads, head_dim = keys.shape[1:]
    heads = made.view(len(x), -1, head_dim)
    query, key, value = heads.split([heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
    at = positions.long()
    turns = cosines[at, None], sines[at, None]
    kept = slots >= 0
    keys[slots[kept].long()] = _rotated(key, *turns)[kept].to(keys.dtype)
    values_cache[slots[kept].long()] = value[kept].to(values_cache.dtype)
    return _rotated(query, *turns), added


def _rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


# -- kernels --------------------------------------------------------------------------------------

_MATRIX = "values_ptr scale_ptr zero_ptr has_zero"
_PLACES = "bias_ptr has_bias cosines_ptr sines_ptr positions_ptr slots_ptr"
_SIZES = "inputs units heads kv_heads"
_ADD = "x_ptr delta_ptr has_delta norm_ptr eps"
_VECTOR = f"query_ptr added_ptr keys_ptr cached_ptr {_ADD} {_MATRIX} {_PLACES} {_SIZES}"
_NORM = f"added_ptr normed_ptr {_ADD} inputs"
_BATCH = f"query_ptr keys_ptr cached_ptr normed_ptr {_MATRIX} {_PLACES} batch {_SIZES}"


@cache
def _vector(kind: str, group: int, activations: str, head_dim: int) -> Kernel:
    name = f"qkv_{packed.label(kind, group, activations)}_b1_d{head_dim}"
    constants = {"D": head_dim, **packed.vector_constants(kind, group, _VECTOR_ROWS)}
    constants["COLUMNS"] //= _FEWER.get(kind, 1)
    return _placed(packed.kernel_of(name, qkv_vector_kernel, _VECTOR, constants, activations))


@cache
def _batch(kind: str, group: int, activations: str, head_dim: int) -> Kernel:
    name = f"qkv_{packed.label(kind, group, activations)}_b{packed.PADDED}_d{head_dim}"
    tile = {"D": head_dim, "ROWS": _BATCH_ROWS, "COLUMNS": _BATCH_COLUMNS}
    constants = {**packed.batch_constants(kind, group), **tile}
    kernel = packed.kernel_of(name, qkv_batch_kernel, _BATCH, constants, activations)
    return _placed(kernel)


@cache
def _norm(activations: str) -> Kernel:
    name = "_".join(("qkv", packed.label("norm", 0, activations)))
    kernel = packed.kernel_of(name, qkv_norm_kernel, _NORM, {"KIND": "none"}, activations)
    return replace(kernel, constants={"COLUMNS": _NORM_COLUMNS}, reads=frozenset())


def _placed(kernel: Kernel) -> Kernel:
    """Positions and slots are whole numbers, and may be parts of a larger tensor."""
    whole = {"positions_ptr": "*i32", "slots_ptr": "*i32"}
    signature = {**kernel.signature, **whole}
    return replace(kernel, signature=signature, divisible=kernel.divisible - whole.keys())


KERNELS: tuple[Kernel, ...] = (
    _norm("bf16"),
    *(
        made(kind, group, "bf16", head_dim)
        for kind, group in packed.BUILT
        for head_dim in HEAD_DIMS
        for made in (_vector, _batch)
    ),
)


def _launch(
    x: Tensor,
    delta: Tensor | None,
    norm: Tensor,
    eps: float,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bias: Tensor | None,
    cosines: Tensor,
    sines: Tensor,
    positions: Tensor,
    slots: Tensor,
    keys: Tensor,
    values_cache: Tensor,
) -> tuple[Tensor, Tensor]:
    kind, group, activations = packed.specialise(x, values, group)
    kv_heads, head_dim = keys.shape[1:]
    if head_dim not in HEAD_DIMS or not (keys.is_contiguous() and values_cache.is_contiguous()):
        raise StartError(
            f"the kernels write heads of {HEAD_DIMS} into a cache without gaps: serve this model "
            "on the CPU"
        )
    x = x.contiguous()
    (batch, inputs), rows = x.shape, len(values)
    heads = rows // head_dim - 2 * kv_heads
    query, added = x.new_empty((batch, heads, head_dim)), torch.empty_like(x)
    unused = x.new_empty(0, dtype=torch.float32)
    matrix = packed.matrix_arguments(values, scale, zero, unused)
    residual = (x, x if delta is None else delta.contiguous(), int(delta is not None), norm, eps)
    turns = [part.contiguous() for part in (cosines, sines, positions, slots)]
    places = (norm if bias is None else bias.contiguous(), int(bias is not None), *turns)
    sizes = (inputs, units(values), heads, kv_heads)
    caches = (keys, values_cache)
    if batch == 1:
        kernel = _vector(kind, group, activations, head_dim)
        grid: tuple[int, ...] = (_programs(kernel, rows),)
        launch(kernel, grid, (query, added, *caches, *residual, *matrix, *places, *sizes))
        return query, added
    normed = torch.empty_like(x)
    launch(_norm(activations), (batch,), (added, normed, *residual, inputs))
    kernel = _batch(kind, group, activations, head_dim)
    grid = (_programs(kernel, rows), -(-batch // packed.PADDED))
    launch(kernel, grid, (query, *caches, normed, *matrix, *places, batch, *sizes))
    return query, added


def _programs(kernel: Kernel, rows: int) -> int:
    return rows // int(kernel.constants["ROWS"])


# -- torch's op -----------------------------------------------------------------------------------


@torch.library.custom_op("conductor::qkv", mutates_args=("keys", "values_cache"))
def qkv(
    x: Tensor,
    delta: Tensor | None,
    norm: Tensor,
    eps: float,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bias: Tensor | None,
    cosines: Tensor,
    sines: Tensor,
    positions: Tensor,
    slots: Tensor,
    keys: Tensor,
    values_cache: Tensor,
) -> tuple[Tensor, Tensor]:
    """Rotated queries [B, heads, D], and the sum of x and delta [B, H]; writes keys and values.

    `x` [B, H] and `delta` the same, added before the norm (None adds nothing); `norm` [H] and `eps`
    as in `ops/norm.py`. The matrix [Q + 2K, H] as `matrix.py` has it: query rows, then key, then
    value; `bias` [Q + 2K] or None. `cosines` and `sines` [P, D], whose halves are equal, turn
    queries and keys by `positions` [B] int32 (Su et al., arXiv:2104.09864, in halves as Llama and
    Qwen2 have it). Keys and values of sequence b are written to `keys` and `values_cache` [S,
    kv_heads, D] at `slots[b]` int32, and nowhere if that is negative. Everything that is not packed
    has the type of x. Raises `StartError` on a GPU for what no kernel can read.
    """
    weights = (norm, eps, values, scale, zero, group, bias)
    places = (cosines, sines, positions, slots, keys, values_cache)
    use = _launch if x.is_cuda or INTERPRETED else qkv_reference
    return use(x, delta, *weights, *places)


@qkv.register_fake
def _(
    x: Tensor,
    delta: Tensor | None,
    norm: Tensor,
    eps: float,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bias: Tensor | None,
    cosines: Tensor,
    sines: Tensor,
    positions: Tensor,
    slots: Tensor,
    keys: Tensor,
    values_cache: Tensor,
) -> tuple[Tensor, Tensor]:
    kv_heads, head_dim = keys.shape[1:]
    heads = values.shape[0] // head_dim - 2 * kv_heads
    return x.new_empty((x.shape[0], heads, head_dim)), torch.empty_like(x)
