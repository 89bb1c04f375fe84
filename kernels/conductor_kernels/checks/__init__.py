"""Is every op as exact as it must be? One table of cases, for tests, benchmarks and a GPU's check.

Each case makes fresh random inputs, runs the op where they lie (on a GPU its kernel, on a CPU its
reference, or the kernel in Triton's interpreter) and compares with the same computed apart from it
in float64, from no code of the op's.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from conductor_kernels.checks.case import Case, Outcome, run

__all__ = ["Case", "Outcome", "cases", "ops", "run"]

_FILES = ("products", "attention", "heads", "automaton")


def cases(*, large: bool = False) -> Iterator[Case]:
    """All of them; with `large` also those of a real model's sizes, for a GPU."""
    for file in _FILES:
        for case in import_module(f"{__name__}.{file}").cases():
            if large or not case.large:
                yield case


def ops() -> list[str]:
    """The ops that are checked."""
    return list(dict.fromkeys(case.op for case in cases(large=True)))
