"""Lines on disk: one file that grows, older ones beside it, never more than so many bytes.

    FOLDER/                    0700
      feedback.jsonl           0600; the newest lines
      feedback.1.jsonl ...     older ones; the highest number is the oldest and goes first

A line is there whole or not at all: what a full disk cut is taken back at once, what a crash cut
when the file is next opened. Lines are not forced to disk one by one: losing the last ones to a
power cut costs a training next to nothing.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

_BLOCK = 64 * 1024


class Lines:
    """For one thread at a time; one process writes to a folder."""

    def __init__(self, folder: Path, max_file_bytes: int, max_files: int) -> None:
        self._folder = folder
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._descriptor: int | None = None
        self._size = 0

    def append(self, line: bytes) -> None:
        """Add a line, its end included. Raises `OSError`; then nothing was added."""
        if len(line) > self._max_file_bytes:
            raise OSError(errno.EFBIG, "longer than a file may be")
        descriptor = self._open()
        if self._size and self._size + len(line) > self._max_file_bytes:
            self.close()
            self._shift()
            descriptor = self._open()
        try:
            _write(descriptor, line)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, self._size)
            self.close()  # and if that failed too, opening it mends it
            raise
        self._size += len(line)

    def close(self) -> None:
        """Until the next line."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def path(self, number: int = 0) -> Path:
        """The file of that age: 0 the newest."""
        return self._folder / (f"feedback.{number}.jsonl" if number else "feedback.jsonl")

    def _open(self) -> int:
        if self._descriptor is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.path(), flags, 0o600)
            try:
                os.fchmod(descriptor, 0o600)  # whatever it was before
                self._size = _mended(descriptor)
            except OSError:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        return self._descriptor

    def _shift(self) -> None:
        """Make every file one older. The oldest is gone then."""
        for number in reversed(range(self._max_files)):
            if not self.path(number).exists():
                continue
            if number + 1 == self._max_files:
                self.path(number).unlink()
            else:
                self.path(number).rename(self.path(number + 1))


def _write(descriptor: int, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[os.write(descriptor, left) :]


def _mended(descriptor: int) -> int:
    """The size, after cutting off a last line that has no end."""
    size = end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _BLOCK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
    return end
