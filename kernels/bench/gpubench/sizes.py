"""How large everything is: a Qwen2.5-7B on a card, and something tiny for a dry run."""

from __future__ import annotations

from dataclasses import dataclass

from conductor_kernels.runner.shape import Rope, Shape

KINDS = ("dense", "fp8", "int8", "int4")


@dataclass(frozen=True)
class Sizes:
    """What a run measures at."""

    shape: Shape
    kinds: tuple[str, ...]
    """How weights are stored, see `conductor_kernels/matrix.py`."""
    batches: tuple[int, ...]
    context: int
    """Tokens that a sequence has in the cache while a step is timed."""
    prefix: int
    """Tokens of a prompt whose keys and values are cached; whole blocks."""
    question: int
    """Tokens of a prompt beyond that."""
    plan: int
    """Tokens of a plan."""
    copy_bytes: int
    """Of the buffer that the copy bandwidth is measured on."""
    matmul: int
    """Rows and columns of the matrices that the matmul rate is measured on."""
    group: int = 128
    """Inputs that share a scale in int4."""


QWEN_7B = Shape(
    vocabulary=152_064,
    hidden=3_584,
    inner=18_944,
    layers=28,
    heads=28,
    kv_heads=4,
    head_dim=128,
    positions=32_768,
    eps=1e-6,
    tied=False,
    rope=Rope(1_000_000.0),
)
"""Qwen2.5-7B's `config.json`."""

FULL = Sizes(
    shape=QWEN_7B,
    kinds=KINDS,
    batches=(1, 4, 16),
    context=1_500,
    prefix=1_216,
    question=64,
    plan=140,
    copy_bytes=4 << 30,
    matmul=8_192,
)
"""Those of the goals: a prefix of at least 1,200 tokens, in whole blocks, and plans of 140."""

_TINY = Shape(
    vocabulary=515,
    hidden=64,
    inner=128,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=64,
    positions=512,
    eps=1e-6,
    tied=False,
    rope=Rope(10_000.0),
)

TINY = Sizes(
    shape=_TINY,
    kinds=("dense", "int4"),
    batches=(1, 2),
    context=40,
    prefix=32,
    question=5,
    plan=4,
    copy_bytes=1 << 16,
    matmul=64,
    group=64,
)
"""Says nothing about speed; shows that every part runs."""
