"""Writing a file that was not there before: keys, above all."""

from __future__ import annotations

import os
from pathlib import Path


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Write `data` durably to a file of exactly `mode`. Raises `FileExistsError` and `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # the umask may have narrowed it
        file.write(data)
        file.flush()
        os.fsync(descriptor)
