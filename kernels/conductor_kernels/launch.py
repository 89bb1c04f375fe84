"""One way to start a kernel, so that one built ahead of time takes the compiler's place.

At its start a runner calls `use_bundle` (or `use`) once. Without that, and where a bundle holds no
compiled kernels, Triton compiles each at its first launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from conductor_kernels.kernelspec import Kernel


class Launcher(Protocol):
    """Starts kernels that are compiled already."""

    def launch(self, kernel: Kernel, grid: tuple[int, ...], arguments: Sequence[Any]) -> None:
        """As `launch` below."""


_in_use: list[Launcher] = []
"""At most one: ops have no way to be handed it."""


def launch(kernel: Kernel, grid: tuple[int, ...], arguments: Sequence[Any]) -> None:
    """Start the kernel on the current stream. `arguments` are those of its signature, in order."""
    if _in_use:
        _in_use[0].launch(kernel, grid, arguments)
        return
    named = dict(zip(kernel.signature, arguments, strict=True))
    kernel.function[grid](
        **named, **kernel.constants, num_warps=kernel.warps, num_stages=kernel.stages
    )


def use(launcher: Launcher | None) -> None:
    """From here on kernels are started by that; None: by Triton's compiler."""
    _in_use[:] = [] if launcher is None else [launcher]


def use_bundle(bundle: Path, device: int = 0) -> bool:
    """Start kernels from the machine code in a bundle's folder, on the GPU of that number, which
    has to be torch's current one. False: the bundle holds none. The folder has to be one that
    `conductor.planner.bundlefolder` laid out: its code is run.

    Raises `StartError` when what it holds is for another GPU or another release, with the command
    that makes it right.
    """
    from conductor_kernels.cubins import load_cubins
    from conductor_kernels.cudadriver import Device
    from conductor_kernels.kernelfile import FOLDER

    found = load_cubins(bundle, Device(device)) if (bundle / FOLDER).is_dir() else None
    use(found)
    return found is not None
