"""Kernels that a bundle holds as machine code: found for this GPU, checked, loaded, started.

    triton/sm_90/{kernels.json,*.cubin}  ->  `load_cubins`  ->  `launch.use`

A bundle that holds compiled kernels, but none for this GPU or none of this release's ops, is
refused with the command that makes it right. One that holds none is no error: Triton compiles at
the first launch, where it is installed.

Left out: whether the folder can be trusted. Machine code is taken from one that
`conductor.planner.bundlefolder` laid out and from no other: there stand the bytes whose hashes were
signed, and nobody else can write.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conductor.errors import StartError
from conductor_kernels.architectures import ARCHITECTURES, Architecture, best_for, name_of
from conductor_kernels.arguments import known, pack
from conductor_kernels.catalogue import OPS, source_hash
from conductor_kernels.cudadriver import Device
from conductor_kernels.kernelfile import FOLDER, RECORD, Built, BuiltKernels, decode
from conductor_kernels.kernelspec import Kernel

MAX_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
"""Of a kernel, which names its file, and of its function."""
_MAX_WARPS = 32
"""A block has at most 1,024 threads."""


class Cubins:
    """`Launcher` over loaded machine code."""

    def __init__(
        self, device: Device, functions: dict[str, tuple[Built, int]], stream: Callable[[], int]
    ) -> None:
        """`functions`: by kernel, what is known of it and the driver's handle. `stream` gives the
        handle of the current one."""
        self._device, self._functions, self._stream = device, functions, stream

    def launch(self, kernel: Kernel, grid: tuple[int, ...], arguments: Sequence[Any]) -> None:
        """As `launch.launch`. Raises `StartError` for arguments that it was not built for."""
        if kernel.name not in self._functions:
            raise StartError(
                f"the bundle has no kernel {kernel.name}: let the runner's dtype be bfloat16, for "
                "which they are compiled"
            )
        built, function = self._functions[kernel.name]
        packed = pack(kernel.name, built, arguments)
        size = _whole(kernel.name, grid)
        if 0 in size:
            return
        shared = built.shared_bytes
        self._device.launch(function, size, built.warps, shared, self._stream(), packed.addresses)


def load_cubins(
    bundle: Path,
    device: Device,
    stream: Callable[[], int] | None = None,
    package: str = OPS,
) -> Cubins | None:
    """The kernels of the bundle in that folder for that GPU; None: the bundle has none for any.

    `package`: whose kernels they are. Raises `StartError`.
    """
    folder = bundle / FOLDER
    if not folder.is_dir():
        return None
    found = _for_device(folder, device.capability)
    record = _record(found, package)
    functions = {
        name: (built, device.load(_code(found, name, built), built.entry, built.shared_bytes))
        for name, built in record.kernels.items()
    }
    return Cubins(device, functions, stream or _current_stream)


def _for_device(folder: Path, capability: tuple[int, int]) -> Path:
    names = sorted(entry.name for entry in folder.iterdir())
    if best := best_for(capability, names):
        return folder / best.name
    ours, held = name_of(capability), ", ".join(names) or "nothing"
    takes = best_for(capability, ARCHITECTURES)
    if takes is None:
        raise StartError(
            f"the bundle's kernels are compiled for {held}, and for this GPU, {ours}, none can be: "
            "take the bundle as it was exported, whose kernels are compiled at the first start"
        )
    raise StartError(
        f"the bundle's kernels are compiled for {held}, and this GPU is {ours}: "
        f"{_command(takes.name)}"
    )


def _record(folder: Path, package: str) -> BuiltKernels:
    record = decode(_read(folder / RECORD))
    expected = ARCHITECTURES[folder.name]
    if (record.architecture, record.code) != (expected.name, expected.code):
        raise StartError(f"{FOLDER}/{folder.name} holds kernels of another architecture: "
                         f"{_command(expected.name)}")  # fmt: skip
    if record.source != source_hash(package):
        raise StartError(
            "the bundle's kernels were compiled from other sources than this release's: "
            f"{_command(expected.name)}"
        )
    for name, built in record.kernels.items():
        if problem := _problem(name, built, expected):
            raise StartError(
                f"{FOLDER}/{folder.name}/{RECORD} cannot be used ({problem}): "
                f"{_command(expected.name)}"
            )
    return record


def _problem(name: str, built: Built, architecture: Architecture) -> str:
    """What no build of ours says, and the driver would make something else of."""
    if not all(isinstance(one, str) and _NAME.fullmatch(one) for one in (name, built.entry)):
        return "a kernel's name is none"
    if not 1 <= built.warps <= _MAX_WARPS:
        return f"{name} has {built.warps} warps"
    if built.shared_bytes > architecture.shared_bytes:
        return f"{name} takes more shared memory than a block has"
    if strange := [kind for _, kind in built.arguments if not known(kind)]:
        return f"{name} takes an argument of type {strange[0][:20]!a}"
    lost = {*built.divisible} - {argument for argument, _ in built.arguments}
    return f"{name} promises something of an argument that it does not take" if lost else ""


def _code(folder: Path, name: str, built: Built) -> bytes:
    code = _read(folder / f"{name}.cubin")
    if hashlib.sha256(code).hexdigest() != built.sha256:
        raise StartError(
            f"{FOLDER}/{folder.name}/{name}.cubin is not what {RECORD} says: take a fresh copy of "
            "the bundle"
        )
    return code


def _command(architecture: str) -> str:
    """BUNDLE is for whoever reads it to fill in: the folder here may be a copy."""
    return (
        f"run `conductor-build compile BUNDLE --out NEW --arch {architecture}` on it and name NEW "
        "as the bundle"
    )


def _whole(name: str, grid: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*grid, *[1] * (3 - len(grid)))
    if not all(0 <= count <= most for count, most in zip((x, y, z), MAX_GRID, strict=True)):
        raise StartError(f"the compiled kernel {name} cannot be started on a grid of {grid}")
    return x, y, z


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise StartError(
            f"{FOLDER}/{path.parent.name}/{path.name} cannot be read: take a fresh copy of the "
            "bundle"
        ) from None


def _current_stream() -> int:
    import torch

    return int(torch.cuda.current_stream().cuda_stream)
