"""Looking at the machine: GPU, disks, memory, clock. Nothing here raises."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from conductor.box import cuda
from conductor.box.command import Run, nothing_runs
from conductor.box.facts import Disk, Gpu, Memory
from conductor.box.place import Place

_SYNCHRONISED = ("/run/systemd/timesync/synchronized", "/run/chrony/chronyd.pid", "/run/ntpd.pid")
_CUDA = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/wsl/lib",
)
GPU_DROPIN = "conductor-planner.service.d/gpu.conf"


def gpu(place: Place, *, wanted: bool, run: Run = nothing_runs) -> Gpu:
    """An NVIDIA GPU as the driver shows it; where one is wanted on the machine that runs, CUDA is
    tried."""
    version = ""
    with suppress(OSError, IndexError):
        first = place.at("/proc/driver/nvidia/version").read_text("ascii", "replace")
        version = first.split("Module")[1].split()[0]
    present = any(place.at("/dev").glob("nvidia[0-9]*"))
    tried = present and wanted and place.running
    return Gpu(
        present=present,
        wanted=wanted,
        opened=(place.overrides / GPU_DROPIN).exists(),
        driver=version,
        cuda=any((place.at(folder) / "libcuda.so.1").exists() for folder in _CUDA),
        fault=cuda.fault(run) if tried else "",
    )


def disks(paths: Mapping[str, Path]) -> tuple[Disk, ...]:
    """Of the disks that these paths lie on; one that is not there yet counts by its parent."""
    return tuple(disk for what, path in paths.items() if (disk := _disk(what, path)) is not None)


def _disk(what: str, path: Path) -> Disk | None:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        seen = os.statvfs(there)
    except OSError:
        return None
    inodes = seen.f_favail if seen.f_files else None  # some file systems do not count them
    size = seen.f_frsize
    return Disk(what, str(path), seen.f_bavail * size, seen.f_blocks * size, inodes)


def memory(place: Place, models: list[Path]) -> Memory | None:
    """As the kernel counts it, and the size of the files that are to be loaded."""
    try:
        lines = place.at("/proc/meminfo").read_text("ascii").splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in map(_split, lines)}
        loaded = sum(path.stat().st_size for path in models if path.exists())
        return Memory(sizes["MemTotal"], sizes["MemAvailable"], loaded)
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def synchronised(place: Place) -> bool:
    """Whether something keeps the clock right, as far as it leaves a file."""
    return any(place.at(path).exists() for path in _SYNCHRONISED)


def built(program: Path) -> datetime | None:
    """When a file was made."""
    try:
        return datetime.fromtimestamp(program.stat().st_mtime, UTC)
    except OSError:
        return None
