"""One way to start a kernel, so that one built ahead of time takes the compiler's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conductor_kernels.kernelspec import Kernel


def launch(kernel: Kernel, grid: tuple[int, ...], arguments: Sequence[Any]) -> None:
    """Start the kernel on the current stream. `arguments` are those of its signature, in order."""
    named = dict(zip(kernel.signature, arguments, strict=True))
    kernel.function[grid](
        **named, **kernel.constants, num_warps=kernel.warps, num_stages=kernel.stages
    )
