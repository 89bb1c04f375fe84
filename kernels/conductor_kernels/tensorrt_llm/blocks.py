"""The parts of TensorRT-LLM's models that are ours: the MLP and the head, on packed matrices.

They know nothing of TensorRT-LLM, so they are tested where it is not installed. Up to 16 rows go
to our ops; more of them, as of a prompt, are a matter for a whole matrix product, for which a
packed matrix is unpacked. Weights are buffers: TensorRT-LLM's own loading fills parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from conductor_kernels.matrix import Matrix
from conductor_kernels.ops.gate_up import gate_up
from conductor_kernels.ops.linear import linear
from conductor_kernels.runner.ops import project, rms_norm
from conductor_kernels.runner.packed import SCALE, VALUES, ZERO

MOST_ROWS = 16
"""Rows that the ops are made for."""
HEAD_ROWS = "conductor.head_rows"
"""The tensor that names the rows of a restricted head: [R] int32."""


class Packed(nn.Module):
    """A matrix that the ops take, [O, I]; nothing until it is put in."""

    values: Tensor | None
    scale: Tensor | None
    zero: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        for name in ("values", "scale", "zero"):
            self.register_buffer(name, None, persistent=False)
        self.group = 0

    def put(self, matrix: Matrix, like: Tensor) -> None:
        """On the device of `like`, and in its type where the matrix is not packed."""
        dtype = like.dtype if matrix.kind == "dense" else matrix.values.dtype
        self.values = matrix.values.to(like.device, dtype)
        self.scale = None if matrix.scale is None else matrix.scale.to(like.device)
        self.zero = None if matrix.zero is None else matrix.zero.to(like.device)
        self.group = matrix.group

    @property
    def matrix(self) -> Matrix:
        """What was put in."""
        assert self.values is not None, "weights are loaded before the first step"
        return Matrix(self.values, self.scale, self.zero, self.group)

    @property
    def parts(self) -> tuple[Tensor, Tensor | None, Tensor | None, int]:
        """As ops take them."""
        held = self.matrix
        return held.values, held.scale, held.zero, held.group

    def times(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """x times the matrix's transpose, plus the residual: [T, O]."""
        if len(x) <= MOST_ROWS:
            product: Tensor = linear(x, *self.parts, None, residual)
            return product
        whole = project(x, self.matrix)
        return whole if residual is None else residual + whole


class Mlp(nn.Module):
    """The residual plus SwiGLU of its norm (Shazeer, arXiv:2002.05202)."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.gate_up, self.down = Packed(), Packed()
        self._eps = eps

    def forward(self, x: Tensor, norm: Tensor) -> Tensor:
        """[T, H] of x [T, H]; `norm` [H] is the weight of the norm in front."""
        return self.down.times(self._inner(x, norm), x)

    def _inner(self, x: Tensor, norm: Tensor) -> Tensor:
        if len(x) <= MOST_ROWS:
            inner: Tensor = gate_up(x, norm, self._eps, *self.gate_up.parts)
            return inner
        gate, up = self.gate_up.times(rms_norm(x, norm, self._eps)).chunk(2, dim=-1)
        return functional.silu(gate) * up


class RestrictedHead(nn.Module):
    """A head over the tokens that some plan may hold. All others are minus infinity, which is what
    the automaton's mask would make of them, so no plan is another for it."""

    rows: Tensor | None

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.register_buffer("rows", None, persistent=False)
        self.weight = Packed()
        self._vocabulary = vocabulary

    def put(self, whole: Tensor, rows: Tensor | None, like: Tensor) -> None:
        """The head's matrix [V, H], of which only the rows [R] are kept; None: all."""
        kept = whole if rows is None else whole[rows.long().to(whole.device)]
        self.weight.put(Matrix(kept), like)
        self.rows = None if rows is None else rows.long().to(like.device)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [T, V] of hidden [T, H]."""
        few = self.weight.times(hidden)
        if self.rows is None:
            return few
        every = few.new_full((len(few), self._vocabulary), -torch.inf)
        return every.index_copy_(1, self.rows, few)


def taken(weights: Mapping[str, Tensor], name: str, group: int) -> Matrix:
    """A matrix of a checkpoint by its name, packed or not. Raises `KeyError`."""
    if name in weights:
        return Matrix(weights[name][:])
    zero = weights.get(name + ZERO)
    values, scale = weights[name + VALUES][:], weights[name + SCALE][:]
    of_groups = group if values.dtype == torch.uint8 else 0
    return Matrix(values, scale.float(), None if zero is None else zero[:].float(), of_groups)
