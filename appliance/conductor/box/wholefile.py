"""Replacing a file of the machine: the old one or the new one is there, never half of one."""

from __future__ import annotations

import grp
import os
from contextlib import suppress
from pathlib import Path

READERS = "conductor-read"
"""The group that may read the configuration."""


def put(path: Path, data: bytes, mode: int, group: str | None = None) -> None:
    """Write `data` durably to `path`, with exactly `mode`; folders that lack are made, 0755.

    `group` is the group's name; where this machine has none of that name, or we may not give files
    away, the group stays. Raises `OSError`.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if group is not None:
            with suppress(KeyError, PermissionError):
                os.fchown(descriptor, -1, grp.getgrnam(group).gr_gid)
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names durable. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
