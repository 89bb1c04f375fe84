"""Part `ceilings`: what the card does at best, with torch's own kernels.

Figures of a data sheet are no ceiling; a share is always of what was measured in the same run.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gpubench.parts import Bench, Ceilings, Row, milli


def rows(bench: Bench) -> Iterator[Row]:
    """Copying, reading and multiplying; sets `bench.ceilings`."""
    copy, first = _copy(bench)
    yield first
    read, second = _read(bench)
    yield second
    matmul, third = _matmul(bench)
    yield third
    bench.ceilings = Ceilings(copy, read, matmul)


def _copy(bench: Bench) -> tuple[float | None, Row]:
    """Bytes read and bytes written both count."""
    size = bench.sizes.copy_bytes
    source = torch.ones(size, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    time = bench.clock.plain(lambda: target.copy_(source))
    rate = None if time is None else 2 * size / time.median
    row = {"what": f"copy of {size} bytes", "ms": milli(time), "GB/s": _giga(rate)}
    return rate, {**row, "TFLOP/s": None}


def _read(bench: Bench) -> tuple[float | None, Row]:
    size = bench.sizes.copy_bytes
    source = torch.ones(size // 4, dtype=torch.float32, device=bench.device)
    time = bench.clock.plain(source.sum)
    rate = None if time is None else size / time.median
    row = {"what": f"sum over {size} bytes", "ms": milli(time), "GB/s": _giga(rate)}
    return rate, {**row, "TFLOP/s": None}


def _matmul(bench: Bench) -> tuple[float | None, Row]:
    """On random numbers: zeros cost less power, and so run at a higher clock."""
    width = bench.sizes.matmul
    left, right = (
        torch.randn(width, width, device=bench.device, dtype=bench.dtype) for _ in range(2)
    )
    out = torch.empty_like(left)
    time = bench.clock.plain(lambda: torch.mm(left, right, out=out))
    rate = None if time is None else 2 * width**3 / time.median
    row: Row = {"what": f"{bench.dtype} product of {width} x {width}", "ms": milli(time)}
    return rate, {**row, "GB/s": None, "TFLOP/s": None if rate is None else round(rate / 1e12, 1)}


def _giga(rate: float | None) -> float | None:
    return None if rate is None else round(rate / 1e9, 1)
