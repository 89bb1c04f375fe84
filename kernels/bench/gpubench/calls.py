"""Calls of the ops on random inputs of their own, as the runner's decode step makes them."""

from __future__ import annotations

import torch
from torch import Tensor

from conductor_kernels.matrix import Matrix
from gpubench.clock import Call
from gpubench.parts import Bench
from gpubench.weights import random_matrix

_EPS = 1e-6
BLOCK = 32
LISTED = 64
"""Tokens that may come in a plan's head."""
_SLOTS = 64
"""Of a cache that is only written to."""


def multiply(bench: Bench, kind: str, batch: int, rows: int, inputs: int) -> Call:
    """`linear`, with a residual."""
    from conductor_kernels.ops.linear import linear

    matrix = _matrix(bench, kind, rows, inputs)
    x, kept = numbers(bench, batch, inputs), numbers(bench, batch, rows)
    return lambda: linear(x, *parts(matrix), None, kept)


def gate(bench: Bench, kind: str, batch: int, rows: int, inputs: int) -> Call:
    """`gate_up`; `rows` are both halves."""
    from conductor_kernels.ops.gate_up import gate_up

    matrix = _matrix(bench, kind, rows, inputs)
    x, norm = numbers(bench, batch, inputs), numbers(bench, inputs)
    return lambda: gate_up(x, norm, _EPS, *parts(matrix))


def project(bench: Bench, kind: str, batch: int, rows: int, inputs: int) -> Call:
    """`qkv`, with a bias."""
    from conductor_kernels.ops.qkv import qkv

    shape = bench.sizes.shape
    matrix = _matrix(bench, kind, rows, inputs)
    x, norm, bias = numbers(bench, batch, inputs), numbers(bench, inputs), numbers(bench, rows)
    cosines, sines = (numbers(bench, _SLOTS, shape.head_dim) for _ in range(2))
    keys, values = (numbers(bench, _SLOTS, shape.kv_heads, shape.head_dim) for _ in range(2))
    at = torch.arange(batch, device=bench.device, dtype=torch.int32)
    return lambda: qkv(
        x, None, norm, _EPS, *parts(matrix), bias, cosines, sines, at, at, keys, values
    )


def attend(bench: Bench, batch: int) -> Call:
    """`attention` over the context of a step, its blocks in no order."""
    from conductor_kernels.ops.attention import attention

    shape = bench.sizes.shape
    blocks = -(-bench.sizes.context // BLOCK)
    table = torch.randperm(batch * blocks, device=bench.device).view(batch, blocks).int()
    sizes = (batch * blocks * BLOCK, shape.kv_heads, shape.head_dim)
    keys, values = numbers(bench, *sizes), numbers(bench, *sizes)
    query = numbers(bench, batch, shape.heads, shape.head_dim)
    lengths = torch.full_like(table[:, 0], bench.sizes.context)
    return lambda: attention(query, keys, values, table, lengths, BLOCK)


def choose_of_all(bench: Bench, batch: int, count: int) -> list[Call]:
    """`choose` of the likeliest token among all, so many times."""
    nobody = torch.zeros(LISTED, device=bench.device, dtype=torch.int32)
    heads = (_head(bench) for _ in range(count))
    return [_choose(bench, batch, head, nobody, -1) for head in heads]


def choose_of_rows(bench: Bench, batch: int, count: int) -> list[Call]:
    """The same among `LISTED` rows of one head: others each time, wherever they lie."""
    head, tokens = _head(bench), bench.sizes.shape.vocabulary
    listed = (torch.randperm(tokens, device=bench.device)[:LISTED] for _ in range(count))
    return [_choose(bench, batch, head, rows.sort()[0].int(), LISTED) for rows in listed]


def _head(bench: Bench) -> Matrix:
    return _matrix(bench, "dense", bench.sizes.shape.vocabulary, bench.sizes.shape.hidden)


def _choose(bench: Bench, batch: int, head: Matrix, listed: Tensor, count: int) -> Call:
    from conductor_kernels.ops.choose import choose

    shape, device = bench.sizes.shape, bench.device
    hidden = numbers(bench, batch, shape.hidden)
    bits = torch.full((batch, -(-shape.vocabulary // 32)), -1, dtype=torch.int32, device=device)
    rows = listed.repeat(batch, 1)
    counts = torch.full_like(rows[:, 0], count)
    heat, seed = torch.ones(batch, device=device), torch.full((batch,), -1, device=device)
    drawn = torch.zeros_like(counts)
    return lambda: choose(hidden, *parts(head), bits, rows, counts, heat, seed, drawn)


def mask(bench: Bench, batch: int) -> Call:
    """`automaton_mask` in a text, and a step that takes a letter."""
    from conductor_kernels.ops.automaton import automaton_mask, automaton_step
    from gpubench.sequences import begun

    state, rules = begun(bench, batch, 1)
    letter, tokens = torch.full_like(state.tokens, ord("e")), bench.sizes.shape.vocabulary

    def call() -> None:
        automaton_mask(state.automaton, rules.grammar, rules.arena, tokens)
        automaton_step(state.automaton, letter, rules.grammar, rules.arena)

    return call


def parts(matrix: Matrix) -> tuple[Tensor, Tensor | None, Tensor | None, int]:
    """As the ops take a matrix."""
    return matrix.values, matrix.scale, matrix.zero, matrix.group


def numbers(bench: Bench, *sizes: int) -> Tensor:
    """Normal ones, of the activations' type."""
    return torch.randn(*sizes, device=bench.device, dtype=bench.dtype)


def _matrix(bench: Bench, kind: str, rows: int, inputs: int) -> Matrix:
    return random_matrix(kind, rows, inputs, bench.sizes.group, bench.device, bench.dtype)
