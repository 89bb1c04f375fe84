"""A decoder of random weights, and a plan language for its made-up vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import torch

from conductor.plan.automaton import Automaton, Tables, compile
from conductor.plan.validate import PlanPool
from conductor_kernels.devicetables import DeviceTables
from conductor_kernels.runner.cache import Cache
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.shape import Shape
from conductor_kernels.runner.weights import Layer, Weights
from gpubench.parts import Bench
from gpubench.vocabulary import spellings
from gpubench.weights import random_matrix

POOL = PlanPool(7)
"""Seven workers, whatever may be shown to whom."""


@dataclass(frozen=True)
class Language:
    """Plans in a vocabulary of so many tokens."""

    tokens: int

    @cached_property
    def tables(self) -> Tables:
        """Some seconds for a vocabulary of 150,000."""
        texts, end = spellings(self.tokens)
        return compile(texts, [end])

    @cached_property
    def automaton(self) -> Automaton:
        return Automaton(self.tables, POOL)

    @cached_property
    def device_tables(self) -> DeviceTables:
        return DeviceTables(self.tables)


@cache
def language(tokens: int) -> Language:
    """The one of so many tokens: made once a run."""
    return Language(tokens)


def decoder_of(bench: Bench, kind: str, tokens: int) -> Decoder:
    """With room for so many tokens in its cache. The head stays as activations are, as the runner
    has it."""
    shape = bench.sizes.shape
    layers = tuple(_layer(bench, shape, kind) for _ in range(shape.layers))
    embedding, head = (
        random_matrix("dense", shape.vocabulary, shape.hidden, 0, bench.device, bench.dtype).values
        for _ in range(2)
    )
    weights = Weights(embedding, layers, _ones(bench, shape.hidden), head)
    return Decoder(shape, weights, Cache(shape, tokens, bench.device, bench.dtype))


def _layer(bench: Bench, shape: Shape, kind: str) -> Layer:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    rows = queries + 2 * keys
    qkv, out, both, down = (
        random_matrix(kind, wide, deep, bench.sizes.group, bench.device, bench.dtype)
        for wide, deep in (
            (rows, shape.hidden),
            (shape.hidden, queries),
            (2 * shape.inner, shape.hidden),
            (shape.hidden, shape.inner),
        )
    )
    bias = torch.zeros(rows, device=bench.device, dtype=bench.dtype)
    norm = _ones(bench, shape.hidden)
    return Layer(norm, qkv, bias, out, None, norm.clone(), both, down)


def _ones(bench: Bench, size: int) -> torch.Tensor:
    return torch.ones(size, device=bench.device, dtype=bench.dtype)
