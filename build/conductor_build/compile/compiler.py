"""One kernel for one architecture: Triton's compiler, without a GPU and without a driver.

Imported only in processes of `pool.py`: Triton compiles or interprets, and never both in one
process.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from conductor.errors import StartError
from conductor_build.compile.machinecode import Figures, read_figures
from conductor_kernels.architectures import Architecture
from conductor_kernels.arguments import ALIGNED
from conductor_kernels.cudadriver import WARP
from conductor_kernels.kernelfile import Built
from conductor_kernels.kernelspec import Kernel


@dataclass(frozen=True)
class Compiled:
    """What became of one kernel on one architecture."""

    name: str
    architecture: str
    built: Built
    figures: Figures
    cubin: bytes
    ptx: bytes
    reads: bool
    """It reads weights, or keys and values."""


def compile_kernel(
    kernel: Kernel, architecture: Architecture, taken_apart: bool = True
) -> Compiled:
    """`taken_apart`: count instructions too, which takes longer than compiling.

    Raises `StartError` for a kernel that cannot be started by hand, or has more shared memory than
    that GPU gives; and whatever Triton raises for one that is wrong.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    made: Any = triton.compile(
        _source(kernel),
        target=GPUTarget("cuda", architecture.number, WARP),
        options={"num_warps": kernel.warps, "num_stages": kernel.stages},
    )
    _check(kernel, made.metadata, architecture)
    cubin, ptx = made.asm["cubin"], made.asm["ptx"]
    built = Built(
        entry=made.metadata.name,
        warps=made.metadata.num_warps,
        stages=kernel.stages,
        shared_bytes=made.metadata.shared,
        arguments=tuple(kernel.signature.items()),
        divisible=tuple(sorted(kernel.divisible)),
        constants=dict(kernel.constants),
        sha256=hashlib.sha256(cubin).hexdigest(),
    )
    weights = [at for at, name in enumerate(kernel.signature) if name in kernel.reads]
    figures = read_figures(cubin, ptx, built.shared_bytes, weights, taken_apart)
    return Compiled(
        kernel.name, architecture.name, built, figures, cubin, ptx.encode(), bool(weights)
    )


def _source(kernel: Kernel) -> Any:
    """In the compiler's form: types of all arguments, constants, and what is divisible."""
    from triton.compiler import ASTSource

    names = kernel.function.arg_names
    divisible = [["tt.divisibility", ALIGNED]]
    return ASTSource(
        fn=kernel.function,
        signature={name: kernel.signature.get(name, "constexpr") for name in names},
        constexprs=dict(kernel.constants),
        attrs={(at,): divisible for at, name in enumerate(names) if name in kernel.divisible},
    )


def _check(kernel: Kernel, metadata: Any, architecture: Architecture) -> None:
    """That `cubins.py` can start it: it hands over no scratch memory and asks for no clusters."""
    scratch = metadata.global_scratch_size or metadata.profile_scratch_size
    special = metadata.num_ctas > 1 or metadata.launch_cooperative_grid or metadata.launch_pdl
    if scratch or special:
        raise StartError(f"{kernel.name} takes scratch memory or a launch of a special kind")
    if metadata.shared > architecture.shared_bytes:
        raise StartError(
            f"{kernel.name} takes {metadata.shared} bytes of shared memory, {architecture.name} "
            f"has {architecture.shared_bytes}: give it a smaller block or fewer stages"
        )
