"""Files that are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import os
from pathlib import Path

from conductor.errors import ConductorError


class OutputError(ConductorError):
    """Something cannot be written, or must not be: the message says what to do."""


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path`, on the disk, in place of what was there.

    Raises `OutputError`, and then what was there is as it was.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OutputError(
            f"{path} cannot be written ({os.strerror(error.errno or 0)}); what was there is as it "
            "was"
        ) from None


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
