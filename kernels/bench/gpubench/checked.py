"""Part `checks`: every op against float64, before anything is timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch

from conductor_kernels.checks import cases, run
from gpubench.parts import Bench, Row

_ORDER = (torch.bfloat16, torch.int32, torch.float32, torch.float16)
"""What a model uses first: compiling takes most of the time, and there may be too little."""
_EVERY = 8
"""Case of an op, in a quick run."""


def rows(bench: Bench) -> Iterator[Row]:
    """One a case. The seed is told, so that a run can be had again."""
    met: Counter[str] = Counter()
    found = cases(large=bench.clock.measures and not bench.quick)
    for case in sorted(found, key=lambda case: _ORDER.index(case.dtype)):
        met[case.op] += 1
        if bench.quick and met[case.op] % _EVERY != 1:
            continue
        outcome = run(case, bench.device, bench.seed)
        yield {
            "op": outcome.op,
            "case": outcome.name,
            "error": outcome.error if outcome.error < float("inf") else None,
            "bound": outcome.bound,
            "passed": outcome.passed,
            "seed": bench.seed,
            "problem": outcome.problem,
        }
