"""Triton where it is installed, and a clear word at the first launch where it is not.

On a CPU the ops run their references, so a machine without a GPU needs no Triton, but imports the
files that hold kernels.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from conductor.errors import StartError

__all__ = ["INSTALLED", "INTERPRETED", "jit", "tl"]

INSTALLED = find_spec("triton") is not None


class _Missing:
    """Stands where a kernel, or `triton.language`, would."""

    def __getattr__(self, name: str) -> Any:
        raise StartError("the kernels need Triton: install the locked build of torch for CUDA")

    def __getitem__(self, grid: object) -> Any:
        raise StartError("the kernels need Triton: install the locked build of torch for CUDA")


if INSTALLED:
    import triton
    import triton.language as tl

    jit: Any = triton.jit
    INTERPRETED: bool = bool(triton.knobs.runtime.interpret)
    """Kernels run in Triton's interpreter, on a CPU: `TRITON_INTERPRET=1`, for tests alone."""
else:
    tl = _Missing()
    INTERPRETED = False

    def jit(function: object = None, **_: object) -> Any:
        """A kernel that cannot be launched."""
        return (lambda _function: _Missing()) if function is None else _Missing()
