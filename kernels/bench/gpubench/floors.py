"""The least that a step can cost: bytes that must be read, and products that must be made.

Pure. `B` sequences, a matrix of `rows` x `inputs`. What is read once a call counts, weights and
keys above all; what stays on the chip does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from conductor_kernels.runner.shape import Shape

_VALUE_BYTES = {"dense": 2.0, "int8": 1.0, "fp8": 1.0, "int4": 0.5}
_ACTIVATION_BYTES = 2
"""bfloat16"""


@dataclass(frozen=True)
class Work:
    """Of one call."""

    bytes: float
    flops: float

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)

    def __mul__(self, times: int) -> Work:
        return Work(self.bytes * times, self.flops * times)

    def floor(self, bandwidth: float, rate: float) -> float:
        """Seconds on a card that moves so many bytes and does so many products a second
        (Williams, Waterman and Patterson 2009, the roofline)."""
        return max(self.bytes / bandwidth, self.flops / rate)


def matrix_bytes(kind: str, rows: int, inputs: int, group: int) -> float:
    """Of a packed matrix with its scales: float32, one a row, or one a group in int4."""
    scales = {"dense": 0.0, "int8": 1.0, "fp8": 1.0}.get(kind)
    if scales is None:
        scales = inputs / group
    return rows * (inputs * _VALUE_BYTES[kind] + 4 * scales)


def product(kind: str, batch: int, rows: int, inputs: int, group: int) -> Work:
    """`linear`: the matrix, what goes in and what comes out."""
    moved = batch * (rows + inputs) * _ACTIVATION_BYTES
    return Work(matrix_bytes(kind, rows, inputs, group) + moved, 2.0 * batch * rows * inputs)


def attention(shape: Shape, batch: int, context: int) -> Work:
    """Keys and values of `context` tokens a sequence, in one layer."""
    kept = 2 * shape.kv_heads * shape.head_dim * context
    moved = 2 * shape.heads * shape.head_dim
    flops = 4.0 * shape.heads * shape.head_dim * context
    return Work((kept + moved) * _ACTIVATION_BYTES, flops) * batch


def layer(shape: Shape, kind: str, batch: int, context: int, group: int) -> Work:
    """All that one layer reads for a token of each sequence."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = (
        (queries + 2 * keys, shape.hidden),
        (shape.hidden, queries),
        (2 * shape.inner, shape.hidden),
        (shape.hidden, shape.inner),
    )
    made = attention(shape, batch, context)
    for rows, inputs in sizes:
        made = made + product(kind, batch, rows, inputs, group)
    return made


def step(
    shape: Shape, kind: str, batch: int, context: int, group: int, head_kind: str = "dense"
) -> Work:
    """A whole decode step with the head over all tokens."""
    head = product(head_kind, batch, shape.vocabulary, shape.hidden, group)
    return layer(shape, kind, batch, context, group) * shape.layers + head
