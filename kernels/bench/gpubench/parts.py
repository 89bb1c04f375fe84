"""What a part of the benchmark is, and what all parts are handed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from gpubench.clock import Clock, Time
from gpubench.sizes import Sizes

Cell = str | int | float | bool | None
Row = dict[str, Cell]
"""One line of a part's table. None: not measured."""


@dataclass(frozen=True)
class Ceilings:
    """What the card does at best, as measured: bytes a second copied and read, products a second.
    None: not measured."""

    copy: float | None
    read: float | None
    matmul: float | None


@dataclass
class Bench:
    """One run. `ceilings` are there once their part has run."""

    device: torch.device
    sizes: Sizes
    clock: Clock
    quick: bool = False
    seed: int = 0
    """Of the inputs of checks."""
    ceilings: Ceilings = field(default_factory=lambda: Ceilings(None, None, None))

    @property
    def dtype(self) -> torch.dtype:
        """Of activations and dense weights."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32


@dataclass(frozen=True)
class Part:
    """A table of the report. `rows` gives them as they are measured, so that what there was time
    for is kept."""

    name: str
    title: str
    budget_s: float
    rows: Callable[[Bench], Iterator[Row]]


def micro(time: Time | None) -> float | None:
    """Microseconds, as a table shows them."""
    return None if time is None else round(time.median * 1e6, 2)


def milli(time: Time | None) -> float | None:
    """Milliseconds."""
    return None if time is None else round(time.median * 1e3, 3)


def ratio(above: float | None, below: float | None, digits: int = 3) -> float | None:
    """None where either was not measured."""
    return None if above is None or not below else round(above / below, digits)
