"""Compiled kernels that no compiler made: for what happens to them afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from conductor_build.compile.compiler import Compiled
from conductor_build.compile.machinecode import Counts, Figures
from conductor_kernels.kernelfile import Built

COUNTS = Counts(spills=0, loads=4, wide_loads=2, conversions=0, tensor=0, instructions=200)
FIGURES = Figures(
    registers=40,
    shared_bytes=1024,
    stack_bytes=0,
    local_bytes=0,
    weight_loads=2,
    narrow_loads=0,
    flushed=0,
    counts=COUNTS,
)


def compiled(name: str = "weighs", architecture: str = "sm_90") -> Compiled:
    """One that passes every gate with a ceiling of 40 registers."""
    cubin = f"code of {name} for {architecture}".encode()
    arguments = (("weights", "*bf16"), ("rows", "i32"))
    digest = hashlib.sha256(cubin).hexdigest()
    built = Built("weigh", 4, 2, 1024, arguments, ("weights",), {"BLOCK": 64}, digest)
    return Compiled(name, architecture, built, FIGURES, cubin, b"// ptx", True)


class FakePool:
    """In place of `compile/pool.py`: compiles at once, in whatever order is the least handy."""

    def __init__(self, names: Sequence[str] = ("turns", "weighs")) -> None:
        self.names = list(names)
        self.failing: Exception | None = None
        self.jobs = 0

    @contextmanager
    def processes(self, jobs: int) -> Iterator[None]:
        self.jobs = jobs
        yield

    def kernels_of(self, pool: Any, package: str) -> list[str]:
        return self.names

    def compile_all(
        self, pool: Any, package: str, names: Collection[str], architectures: Sequence[str]
    ) -> Iterator[Compiled]:
        for architecture in reversed(architectures):
            for name in reversed([*names]):
                yield compiled(name, architecture)
            if self.failing:
                raise self.failing
