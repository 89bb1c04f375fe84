"""What one check is, and how far off its op was."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FLOAT32 = 1e-5
"""Most error of a result in float32, over its largest element: what sums of thousands of products
lose, with room for another order of the sum."""
_ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""What one rounding to that type may change, relative to the number."""
DTYPES = (torch.float32, *_ROUNDING)


def bound_of(dtype: torch.dtype, roundings: int) -> float:
    """Most error of an op that sums in float32 and rounds to `dtype` so many times on the way."""
    return FLOAT32 if dtype == torch.float32 else roundings * _ROUNDING[dtype]


EXACT = 0.0

Measure = Callable[[torch.device, int], float]
"""Device and seed to the error: it makes fresh inputs, runs the op and computes the same apart from
it in float64."""


@dataclass(frozen=True)
class Case:
    """One op with one kind of input."""

    op: str
    name: str
    """What is special about the inputs: kind, type, sizes."""
    dtype: torch.dtype
    """Of what goes in."""
    bound: float
    """Most error, in the unit of `measure`."""
    measure: Measure
    large: bool = False
    """Of a real model's sizes: for a GPU."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case. `error` is infinite where the op broke; `problem` then says how."""

    op: str
    name: str
    bound: float
    error: float
    problem: str = ""

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


def run(case: Case, device: torch.device, seed: int = 0) -> Outcome:
    """One case. An op that raises has failed: a report tells of all, not of the first."""
    try:
        error = case.measure(device, seed)
    except Exception as raised:  # noqa: BLE001  compilers and drivers have no base of their own
        return Outcome(case.op, case.name, case.bound, math.inf, _said(raised))
    return Outcome(case.op, case.name, case.bound, error if error == error else math.inf)


def _said(raised: Exception) -> str:
    lines = str(raised).strip().splitlines()
    return f"{type(raised).__name__}: {lines[0][:200] if lines else ''}"


def relative(got: Tensor, want: Tensor) -> float:
    """The largest difference over the largest wanted number; infinite for another shape or for what
    is no number."""
    if got.shape != want.shape or not bool(torch.isfinite(got).all()):
        return math.inf
    if not want.numel():
        return 0.0
    apart = (got.to(want.device).double() - want).abs().max()
    most = want.abs().max()
    return float(apart / most) if most > 0 else float(apart)


def name_of(dtype: torch.dtype) -> str:
    """`bfloat16`, not `torch.bfloat16`."""
    return str(dtype).removeprefix("torch.")
