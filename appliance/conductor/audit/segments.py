"""The audit log on disk: a directory of append-only segments with one writer.

Segments are named `audit-<number>.jsonl`; the highest number is the one being written. A lock on
the directory keeps a second writer out. Whatever a crash tore off the end is cut back to the last
whole line, which is the last that anyone was told is durable.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from conductor.audit.record import MAX_RECORD_BYTES, ChainEnd, hash_line, parse
from conductor.errors import AuditError

_SEGMENT_GLOB = f"audit-{'[0-9]' * 8}.jsonl"

CHECKPOINT_NAME = "checkpoint"
"""Beside the segments: the signed checkpoint written last, for whoever anchors it elsewhere."""

MAX_BATCH = 256
"""Records in one write. A crash can tear no more, so this bounds how far back `read_tail` looks."""

_TAIL_BYTES = 2 * MAX_BATCH * MAX_RECORD_BYTES


@dataclass(frozen=True)
class Tail:
    """The end of a segment: the offset after its last whole line, that line, what is torn."""

    good_bytes: int
    last_line: bytes | None
    torn: bytes


def segments(directory: Path) -> list[Path]:
    """All segments, oldest first."""
    return sorted(directory.glob(_SEGMENT_GLOB))


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"audit-{number:08d}.jsonl"


def lock(directory: Path) -> int:
    """Create and lock the directory; the returned descriptor holds the lock and syncs names.

    Raises:
        AuditError: another process writes this log, or the directory cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise AuditError(f"the audit directory cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise AuditError(
            "another process writes this audit log: stop it, or give each its own directory"
        ) from None
    return fd


def read_tail(path: Path) -> Tail:
    """Find the last whole line. Lines that hold NUL bytes were allocated but never written.

    Raises:
        AuditError: no whole line stands where one must: that is damage, not a torn write.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL_BYTES)
        file.seek(start)
        window = file.read()
    good = window.rfind(b"\n") + 1
    while good and b"\0" in window[_line_start(window, good) : good]:
        good = _line_start(window, good)
    if good == 0 and start > 0:
        raise AuditError("the end of the audit log is damaged: run `conductor audit verify`")
    line = window[_line_start(window, good) : good - 1] if good else None
    return Tail(start + good, line, window[good:])


def first_record(path: Path) -> dict[str, Any] | None:
    """The record that a segment begins with; None when it has none."""
    with path.open("rb") as file:
        return parse(file.readline(2 * MAX_RECORD_BYTES).removesuffix(b"\n"))


def is_sealed(directory: Path) -> bool:
    """Whether the end of the log in `directory` was written with a key.

    Raises `AuditError` and `OSError`.
    """
    for path in reversed(segments(directory)):
        line = read_tail(path).last_line
        if line is not None:
            record = parse(line)
            return record is not None and "mac" in record
    return False


def _line_start(window: bytes, end: int) -> int:
    """Where the line that ends (with its newline) at `end` begins."""
    return window.rfind(b"\n", 0, end - 1) + 1


def chain_end(line: bytes) -> ChainEnd:
    """Where the chain stands after `line`; raises `AuditError` when it is no record."""
    try:
        seq = orjson.loads(line)["seq"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        seq = None
    if type(seq) is not int:
        raise AuditError(
            "the last line of the audit log is no record: run `conductor audit verify`, then move "
            "the directory away and start a new log"
        )
    return ChainEnd(seq, hash_line(line))


def latest_note(directory: Path) -> str | None:
    """The checkpoint signed last, as it is kept in `directory`; None when there is none."""
    try:
        return (directory / CHECKPOINT_NAME).read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def publish_note(directory: Path, note: str) -> None:
    """Replace that checkpoint, whole or not at all. Raises `OSError`."""
    new = directory / (CHECKPOINT_NAME + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o640), "wb") as file:
        file.write(note.encode())
        file.flush()
        os.fsync(file.fileno())
    new.replace(directory / CHECKPOINT_NAME)


class Segment:
    """The segment being written. Every method may raise `OSError`; `good_bytes` is then still the
    offset up to which all is durable, and `reopen` goes back to it."""

    def __init__(self, directory_fd: int, path: Path, good_bytes: int) -> None:
        self.path = path
        self.good_bytes = good_bytes
        self._directory_fd = directory_fd
        self._fd = -1

    def reopen(self) -> None:
        """Open, create if new, and cut everything after the last durable line."""
        self.close()
        create = 0 if self.good_bytes else os.O_CREAT
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | create, 0o640)
        if os.fstat(self._fd).st_size < self.good_bytes:
            raise OSError(errno.ESTALE, "durable records have vanished")
        os.ftruncate(self._fd, self.good_bytes)
        os.fsync(self._fd)
        os.fsync(self._directory_fd)

    def append(self, data: bytes) -> None:
        """Write and make durable, or raise `OSError`."""
        if os.fstat(self._fd).st_nlink == 0:
            raise OSError(errno.ESTALE, "the segment was deleted")
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        os.fdatasync(self._fd)
        self.good_bytes += len(data)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def read_since(directory: Path, ts: str) -> Iterator[dict[str, Any]]:
    """Stream the records from the time `ts` on (ISO 8601 UTC, as in the records), oldest first.

    For a log that has been opened, so that no torn line stands at its end.

    Raises:
        AuditError: a line is no record. Nothing is left out in silence: money hangs on it.
    """
    for path in _segments_since(directory, ts):
        with path.open("rb") as file:
            while line := file.readline(2 * MAX_RECORD_BYTES):
                try:
                    record = orjson.loads(line)
                    recent = record["ts"] >= ts
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    raise AuditError(
                        "the audit log is damaged: run `conductor audit verify`"
                    ) from None
                if recent:
                    yield record


def _segments_since(directory: Path, ts: str) -> list[Path]:
    """The newest segments back to the first one that begins before `ts`."""
    chosen: list[Path] = []
    for path in reversed(segments(directory)):
        chosen.insert(0, path)
        with path.open("rb") as file:
            first = file.readline(2 * MAX_RECORD_BYTES)
        stamp = first.partition(b'"ts":"')[2][: len(ts)].decode("ascii", "replace")
        if stamp and stamp < ts:
            break
    return chosen
