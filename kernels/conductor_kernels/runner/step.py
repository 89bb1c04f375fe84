"""One step of the decoder over several sequences, laid out for the ops.

A `Step` has any number of tokens of each, in a row, without padding. `Singles` has one token of
each, and every size is fixed but the number of sequences: so the same kernels serve all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conductor_kernels.runner.cache import Table


@dataclass(frozen=True)
class Share:
    """What one sequence brings to a step: tokens that follow on those that the cache holds."""

    tokens: Sequence[int]
    length: int
    """Tokens of the sequence in the cache before."""
    table: Table


@dataclass(frozen=True, eq=False)
class Span:
    """Where a sequence's tokens lie in the step, and what of the cache they see."""

    rows: slice
    blocks: Tensor
    """int64: the sequence's blocks, in order."""
    end: int
    """Tokens of the sequence after the step."""


@dataclass(frozen=True, eq=False)
class Step:
    """T tokens of all shares."""

    tokens: Tensor
    """[T] int64"""
    slots: Tensor
    """[T] int64: where in the cache their keys and values go."""
    cosines: Tensor
    """[T, D], and the sines: of their positions."""
    sines: Tensor
    spans: tuple[Span, ...]

    @property
    def last(self) -> list[int]:
        """Row of the last token of each share."""
        return [span.rows.stop - 1 for span in self.spans]


def lay_out(shares: Sequence[Share], cosines: Tensor, sines: Tensor) -> Step:
    """The step of these shares. `cosines` and `sines` hold every position, [P, D]."""
    device = cosines.device
    tokens: list[int] = []
    slots: list[int] = []
    positions: list[int] = []
    spans: list[Span] = []
    for share in shares:
        places = range(share.length, share.length + len(share.tokens))
        spans.append(
            Span(
                slice(len(tokens), len(tokens) + len(places)),
                torch.tensor(share.table.up_to(places.stop), device=device),
                places.stop,
            )
        )
        tokens.extend(share.tokens)
        positions.extend(places)
        slots.extend(map(share.table.slot, places))
    at = torch.tensor(positions, device=device)
    return Step(
        torch.tensor(tokens, device=device),
        torch.tensor(slots, device=device),
        cosines[at],
        sines[at],
        tuple(spans),
    )


@dataclass(frozen=True, eq=False)
class Singles:
    """One token of each of B sequences, as `conductor_kernels.ops` take them; int32."""

    tokens: Tensor
    """[B]"""
    positions: Tensor
    """[B]"""
    slots: Tensor
    """[B] where its key and value go; -1: nowhere."""
    blocks: Tensor
    """[B, M] the sequence's blocks in order; beyond its length whatever is there."""
    lengths: Tensor
    """[B] tokens that it sees, itself included; 0: no sequence."""


def singles(shares: Sequence[Share], device: torch.device) -> Singles:
    """The step of shares of one token each."""
    tables = [share.table.up_to(share.length + 1) for share in shares]
    width = max(map(len, tables))

    def numbers(of: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(of, dtype=torch.int32, device=device)

    return Singles(
        numbers([share.tokens[0] for share in shares]),
        numbers([share.length for share in shares]),
        numbers([share.table.slot(share.length) for share in shares]),
        numbers([table + [0] * (width - len(table)) for table in tables]),
        numbers([share.length + 1 for share in shares]),
    )
