"""Part `ops`: what each op takes at the sizes of the model, beside the least that it could take.

Every op is timed on several inputs in turn, together larger than the second-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gpubench import calls
from gpubench.card import l2_bytes
from gpubench.clock import Call
from gpubench.floors import Work, attention, product
from gpubench.parts import Bench, Row, micro, ratio

_MOST_COPIES = 512


@dataclass(frozen=True)
class Timed:
    """One op at one size."""

    op: str
    kind: str
    batch: int
    size: str
    work: Work
    calls: Callable[[int], Sequence[Call]]
    """Makes so many calls, each on inputs of its own."""


def rows(bench: Bench) -> Iterator[Row]:
    """One an op, kind and batch."""
    batches = bench.sizes.batches[:1] if bench.quick else bench.sizes.batches
    for batch in batches:
        for one in _of_batch(bench, batch):
            yield _timed(bench, one)


def _timed(bench: Bench, one: Timed) -> Row:
    copies = copies_for(one.work.bytes, l2_bytes(bench.device))
    time = bench.clock.kernels(one.calls(copies))
    median = None if time is None else time.median
    ceilings = bench.ceilings
    floor = None
    if ceilings.copy and ceilings.matmul:
        floor = one.work.floor(ceilings.copy, ceilings.matmul)
    moved = None if median is None else one.work.bytes / median
    return {
        "op": one.op,
        "kind": one.kind,
        "batch": one.batch,
        "size": one.size,
        "bytes": one.work.bytes,
        "flops": one.work.flops,
        "us": micro(time),
        "floor us": None if floor is None else round(floor * 1e6, 2),
        "over floor": ratio(median, floor, 2),
        "of copy bandwidth": ratio(moved, ceilings.copy),
    }


def copies_for(moved: float, cache: int) -> int:
    """Inputs that together are three times the cache, but not without end."""
    return max(1, min(_MOST_COPIES, round(3 * cache / max(moved, 1)) + 1))


def _of_batch(bench: Bench, batch: int) -> Iterator[Timed]:
    for kind in bench.sizes.kinds:
        yield from _of_kind(bench, kind, batch)
    context = bench.sizes.context
    work, made = attention(bench.sizes.shape, batch, context), _each(calls.attend, bench, batch)
    yield Timed("attention", "dense", batch, f"context {context}", work, made)
    yield from _heads(bench, batch)


def _of_kind(bench: Bench, kind: str, batch: int) -> Iterator[Timed]:
    """The four products of a layer."""
    shape, group = bench.sizes.shape, bench.sizes.group
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for name, make, wide, deep in (
        ("qkv", calls.project, queries + 2 * keys, shape.hidden),
        ("linear out", calls.multiply, shape.hidden, queries),
        ("gate_up", calls.gate, 2 * shape.inner, shape.hidden),
        ("linear down", calls.multiply, shape.hidden, shape.inner),
    ):
        made = _each(make, bench, kind, batch, wide, deep)
        work = product(kind, batch, wide, deep, group)
        yield Timed(name, kind, batch, f"{wide} x {deep}", work, made)


def _heads(bench: Bench, batch: int) -> Iterator[Timed]:
    """The head over all tokens and over those of a plan's heads, and the automaton before it."""
    shape = bench.sizes.shape
    for name, rows, make in (
        ("choose, whole head", shape.vocabulary, calls.choose_of_all),
        ("choose, rows", calls.LISTED, calls.choose_of_rows),
    ):
        # All sequences are asked for the same rows, which are read once.
        work = product("dense", batch, rows, shape.hidden, 0)
        size = f"{rows} x {shape.hidden}"
        yield Timed(name, "dense", batch, size, work, partial(make, bench, batch))
    # Three tables of all tokens are read, once for all, and a bit of each is written.
    masked = Work(shape.vocabulary * (3 * 4 + batch / 8), 0.0)
    made, size = _each(calls.mask, bench, batch), f"{shape.vocabulary} tokens"
    yield Timed("automaton", "int32", batch, size, masked, made)


def _each(make: Callable[..., Call], *of: object) -> Callable[[int], Sequence[Call]]:
    """So many of these, which share nothing."""
    return lambda count: [make(*of) for _ in range(count)]
