"""A checkpoint's weights, in the layout that the ops take: what is used together lies together.

Query, key and value weights are one matrix, and so are gate and up: one product instead of three
and two, in the order that a fused kernel reads. Matrices of linear layers may stay packed.

Every tensor of the checkpoint must be one that this decoder uses; one more would mean that it
computes something else than was trained.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conductor.errors import StartError
from conductor_kernels.matrix import Matrix
from conductor_kernels.runner.packed import (
    SCALE,
    VALUES,
    ZERO,
    Layout,
    read_layout,
    stacked,
    unpacked,
)
from conductor_kernels.runner.shape import Shape

_EMBEDDING = "model.embed_tokens.weight"
_NORM = "model.norm.weight"
_HEAD = "lm_head.weight"
_UNUSED = re.compile(r".*\.rotary_emb\.inv_freq")
"""Old checkpoints hold it; it is computed."""


@dataclass(frozen=True, eq=False)
class Layer:
    """H hidden, Q = heads x head_dim, K = kv_heads x head_dim, I inner."""

    input_norm: Tensor
    """[H]"""
    qkv: Matrix
    """[Q + 2K, H]: query rows, then key, then value."""
    qkv_bias: Tensor | None
    """[Q + 2K]"""
    out: Matrix
    """[H, Q]"""
    out_bias: Tensor | None
    """[H]"""
    inner_norm: Tensor
    """[H]"""
    gate_up: Matrix
    """[2I, H]: gate rows, then up."""
    down: Matrix
    """[H, I]"""


@dataclass(frozen=True, eq=False)
class Weights:
    """All of a decoder."""

    embedding: Tensor
    """[V, H]"""
    layers: tuple[Layer, ...]
    norm: Tensor
    """[H]"""
    head: Tensor
    """[V, H]; the embedding itself when tied."""


class Checkpoint:
    """The safetensors files of one folder, open. Raises `StartError` for whatever does not fit."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self._shape = shape
        self._layout = read_layout(folder)
        self._files = ExitStack()
        self._holder: dict[str, Any] = {}
        try:
            self._open(folder)
        except BaseException:
            self._files.close()
            raise

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def size(self, dtype: torch.dtype, *, packed: bool) -> int:
        """Bytes of memory that the weights take, if they are read so."""
        total, parts = 0, set[str]()
        for name, shape in self._layout.shapes.items() if self._layout else ():
            held = [name + end for end in (VALUES, SCALE, ZERO) if name + end in self._holder]
            parts.update(held)
            stays = packed and self._layout is not None and self._layout.readable(name)
            total += self._packed_size(held) if stays else math.prod(shape) * dtype.itemsize
        whole = self._holder.keys() - parts
        return total + sum(map(self._numbers, whole)) * dtype.itemsize

    def read(self, device: torch.device, dtype: torch.dtype, *, packed: bool = False) -> Weights:
        """All weights, on that device. `packed`: matrices stay as they are stored; all else is
        of that type."""
        wanted = _Reader(self._holder, self._layout, device, dtype, packed=packed)
        hidden, vocabulary = self._shape.hidden, self._shape.vocabulary
        embedding = wanted.take(_EMBEDDING, vocabulary, hidden)
        layers = tuple(_layer(wanted, i, self._shape) for i in range(self._shape.layers))
        norm = wanted.take(_NORM, hidden)
        head = embedding
        if self._shape.tied:
            wanted.skip(_HEAD)
        else:
            head = wanted.take(_HEAD, vocabulary, hidden)
        wanted.check_all_used()
        return Weights(embedding, layers, norm, head)

    def _numbers(self, name: str) -> int:
        return math.prod(self._holder[name].get_slice(name).get_shape())

    def _packed_size(self, parts: list[str]) -> int:
        """A byte for each of the values; scales and zeros are float32 in memory."""
        return sum(self._numbers(part) * (1 if part.endswith(VALUES) else 4) for part in parts)

    def _open(self, folder: Path) -> None:
        try:
            from safetensors import SafetensorError, safe_open
        except ModuleNotFoundError:
            raise StartError(
                "the torch runner needs safetensors: install conductor-appliance[lm]"
            ) from None
        for path in sorted(folder.glob("*.safetensors")):
            try:
                file = self._files.enter_context(safe_open(path, framework="pt"))
            except (OSError, SafetensorError):
                raise StartError(f"{path.name} cannot be read as safetensors") from None
            for name in file.keys():  # noqa: SIM118  it is no mapping
                if name in self._holder:
                    raise StartError(f"two files of the checkpoint hold {name}")
                self._holder[name] = file
        if not self._holder:
            raise StartError("the checkpoint has no *.safetensors file")


class _Reader:
    """Takes tensors by name, each once, and knows which are left."""

    def __init__(
        self,
        holder: dict[str, Any],
        layout: Layout | None,
        device: torch.device,
        dtype: torch.dtype,
        *,
        packed: bool,
    ) -> None:
        self._holder, self._layout = holder, layout
        self._device, self._dtype, self._packed = device, dtype, packed
        self._left = {name for name in holder if not _UNUSED.fullmatch(name)}

    def take(self, name: str, *sizes: int) -> Tensor:
        """Raises `StartError` when it is not there, or has other sizes."""
        found = self.maybe(name, *sizes)
        if found is None:
            raise StartError(f"the checkpoint holds no {name}")
        return found

    def maybe(self, name: str, *sizes: int) -> Tensor | None:
        """None when it is not there."""
        matrix = self._stored(name)
        tensor = self._whole(name) if matrix is None else unpacked(matrix, sizes[-1])
        if tensor is None:
            return None
        if tuple(tensor.shape) != sizes or not tensor.is_floating_point():
            raise StartError(_misfit(name))
        return tensor.to(self._device, self._dtype)

    def matrix(self, name: str, rows: int, inputs: int) -> Matrix:
        """As it is stored, if matrices stay so. Raises as `take` does."""
        layout = self._layout
        may_stay = self._packed and layout is not None and name in layout.shapes
        if layout is None or not may_stay or not layout.readable(name):
            return Matrix(self.take(name, rows, inputs))
        if layout.shapes[name] != (rows, inputs):
            raise StartError(_misfit(name))
        stored = self._stored(name)
        if stored is None:
            raise StartError(f"the checkpoint holds no {name}")
        parts = (stored.values, stored.scale, stored.zero)
        values, scale, zero = (None if one is None else one.to(self._device) for one in parts)
        assert values is not None
        return Matrix(values, scale, zero, stored.group)

    def _whole(self, name: str) -> Tensor | None:
        if name not in self._holder:
            return None
        self._left.discard(name)
        tensor: Tensor = self._holder[name].get_tensor(name)
        return tensor

    def _stored(self, name: str) -> Matrix | None:
        """None when it is not packed, or not there."""
        if self._layout is None or name not in self._layout.shapes:
            return None
        values, scale, zero = (self._whole(name + end) for end in (VALUES, SCALE, ZERO))
        if values is None or scale is None:
            raise StartError(f"the checkpoint holds no {name}")
        return self._layout.matrix(name, values, scale, zero)

    def skip(self, name: str) -> None:
        """Known, and not needed."""
        self._left.discard(name)

    def check_all_used(self) -> None:
        """Raises `StartError` for tensors that nobody took."""
        if self._left:
            raise StartError(
                f"the checkpoint holds {len(self._left)} tensors that no Llama or Qwen2 decoder "
                f"has, {min(self._left)} among them: the torch runner cannot run it"
            )


def _misfit(name: str) -> str:
    return f"{name} does not have the sizes or the type that config.json says"


def _layer(wanted: _Reader, number: int, shape: Shape) -> Layer:
    at = f"model.layers.{number}"
    hidden, queries = shape.hidden, shape.heads * shape.head_dim
    rows = {"q": queries, "k": shape.kv_heads * shape.head_dim}
    rows["v"] = rows["k"]
    qkv = [wanted.matrix(f"{at}.self_attn.{n}_proj.weight", r, hidden) for n, r in rows.items()]
    halves = [f"{at}.mlp.{name}_proj.weight" for name in ("gate", "up")]
    return Layer(
        input_norm=wanted.take(f"{at}.input_layernorm.weight", hidden),
        qkv=stacked(qkv),
        qkv_bias=_bias(wanted, at, rows),
        out=wanted.matrix(f"{at}.self_attn.o_proj.weight", hidden, queries),
        out_bias=wanted.maybe(f"{at}.self_attn.o_proj.bias", hidden),
        inner_norm=wanted.take(f"{at}.post_attention_layernorm.weight", hidden),
        gate_up=stacked([wanted.matrix(name, shape.inner, hidden) for name in halves]),
        down=wanted.matrix(f"{at}.mlp.down_proj.weight", hidden, shape.inner),
    )


def _bias(wanted: _Reader, at: str, rows: dict[str, int]) -> Tensor | None:
    parts = list(_biases(wanted, at, rows))
    if not parts:
        return None
    if len(parts) < len(rows):
        raise StartError(f"{at} has a bias for some of query, key and value only")
    return torch.cat(parts)


def _biases(wanted: _Reader, at: str, rows: dict[str, int]) -> Iterator[Tensor]:
    for name, count in rows.items():
        bias = wanted.maybe(f"{at}.self_attn.{name}_proj.bias", count)
        if bias is not None:
            yield bias
