"""A small random model, the same on every device, and plans to be asked of it."""

from __future__ import annotations

import torch
from torch import Tensor

from conductor.plan.automaton import Automaton, compile
from conductor.plan.validate import PlanPool
from conductor.planner.lm_runner import Wanted
from conductor_kernels.matrix import Matrix
from conductor_kernels.runner.cache import Cache
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.shape import Rope, Shape
from conductor_kernels.runner.weights import Layer, Weights

_END = 256
_PREFIX, _REST = 70, 20
SHAPE = Shape(
    vocabulary=_END + 1,
    hidden=128,
    inner=192,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=64,
    positions=512,
    eps=1e-6,
    tied=False,
    rope=Rope(10_000.0),
)
"""A token for each byte, and an end."""


def decoder(device: torch.device, seed: int) -> Decoder:
    """In float32, with biases. Numbers are drawn on the CPU, so that all devices have the same."""
    random = torch.Generator().manual_seed(seed)

    def numbers(*sizes: int, spread: float = 1.0) -> Tensor:
        return (torch.randn(*sizes, generator=random) * spread).to(device)

    def matrix(rows: int, inputs: int) -> Matrix:
        return Matrix(numbers(rows, inputs, spread=2 * inputs**-0.5))

    queries, keys = SHAPE.heads * SHAPE.head_dim, SHAPE.kv_heads * SHAPE.head_dim
    layers = tuple(
        Layer(
            input_norm=1 + numbers(SHAPE.hidden, spread=0.1),
            qkv=matrix(queries + 2 * keys, SHAPE.hidden),
            qkv_bias=numbers(queries + 2 * keys, spread=0.5),
            out=matrix(SHAPE.hidden, queries),
            out_bias=None,
            inner_norm=1 + numbers(SHAPE.hidden, spread=0.1),
            gate_up=matrix(2 * SHAPE.inner, SHAPE.hidden),
            down=matrix(SHAPE.hidden, SHAPE.inner),
        )
        for _ in range(SHAPE.layers)
    )
    weights = Weights(
        embedding=numbers(SHAPE.vocabulary, SHAPE.hidden),
        layers=layers,
        norm=1 + numbers(SHAPE.hidden, spread=0.1),
        head=matrix(SHAPE.vocabulary, SHAPE.hidden).values,
    )
    return Decoder(SHAPE, weights, Cache(SHAPE, 2_048, device, torch.float32))


def asks(count: int, most_tokens: int) -> list[Wanted]:
    """Plans over one prefix, with a question each; every other is drawn, the rest greedy."""
    tables = compile([*(bytes([byte]) for byte in range(256)), None], [_END])
    automaton = Automaton(tables, PlanPool(7))
    prefix = tuple(33 + at * 7 % 90 for at in range(_PREFIX))
    return [
        Wanted(
            prefix,
            tuple(33 + (at * 11 + number * 5) % 90 for at in range(_REST)),
            automaton,
            most_tokens,
            temperature=1.3,
            seed=number if number % 2 else None,
        )
        for number in range(count)
    ]
