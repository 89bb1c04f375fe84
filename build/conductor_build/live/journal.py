"""What workers have answered, on disk: asked once, known ever after.

    conductor calls 1                                          the first line
    5f2a9c0d1e3b4a68 {"key": "...", "worker": "...", "text": "...", ...}

Each line begins with the first 16 hex digits of the SHA-256 of its JSON. Lines are only ever added.
A last line that a kill cut short is dropped; any other that does not match its hash means damage.
The file holds what workers answered, which is why nobody but its owner may read it. One process
writes at a time; any number may replay.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO

import orjson

from conductor.core import Usage, Worker
from conductor.errors import ConductorError
from conductor_build.probe_journal import identity

_HEAD = b"conductor calls 1\n"
_DIGITS = 16


class JournalError(ConductorError):
    """A journal cannot be used as asked. Says what to do."""


@dataclass(frozen=True)
class Entry:
    """One answer. `usd` is what it cost when it was given, `seconds` how long it took."""

    key: str
    worker: str
    text: str
    prompt_tokens: int
    output_tokens: int
    seconds: float
    usd: float

    @property
    def usage(self) -> Usage:
        return Usage(self.prompt_tokens, self.output_tokens)


def call_key(worker: Worker, body: bytes) -> str:
    """SHA-256 over who is asked and what: model, messages, sampling and seed are the `body`, whose
    JSON is canonical. A worker that is now another model, or elsewhere, is another one."""
    return hashlib.sha256(f"{identity(worker)}\n".encode() + body).hexdigest()


class Journal:
    """Answers by key; with a `file` also those that come."""

    def __init__(self, entries: Mapping[str, Entry], file: IO[bytes] | None, path: Path) -> None:
        """`path` is named in errors."""
        self._entries = dict(entries)
        self._file = file
        self._path = path

    @property
    def writable(self) -> bool:
        """Whether answers can be added: not in a replay."""
        return self._file is not None

    def find(self, key: str) -> Entry | None:
        """The answer to that, if there is one."""
        return self._entries.get(key)

    def add(self, entry: Entry) -> None:
        """Keep an answer: it is in the file when this returns. Raises `JournalError`."""
        if self._file is None:
            raise JournalError("a replay adds nothing to its journal")
        try:
            self._file.write(_line(entry))
            self._file.flush()
        except OSError as error:
            raise _unusable(self._path, error) from None
        self._entries[entry.key] = entry

    @property
    def spent_usd(self) -> float:
        """What all its answers cost."""
        return sum(entry.usd for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


@contextmanager
def opened(path: Path) -> Iterator[Journal]:
    """The journal at `path`, begun or gone on with. Raises `JournalError`."""
    with ExitStack() as stack:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            file = stack.enter_context(os.fdopen(descriptor, "a+b"))
            entries = _begun(file, path)
        except OSError as error:
            raise _unusable(path, error) from None
        yield Journal(entries, file, path)


def replayed(path: Path) -> Journal:
    """The journal at `path`, to be read alone. Raises `JournalError`."""
    try:
        return Journal(_read(path.read_bytes(), path)[0], None, path)
    except OSError as error:
        raise _unusable(path, error) from None


def _begun(file: IO[bytes], path: Path) -> dict[str, Entry]:
    """Make a file ready for further lines; what is in it."""
    _lock(file, path)
    file.seek(0)
    entries, end = _read(file.read(), path)
    file.truncate(end)
    if not end:
        file.write(_HEAD)
        file.flush()
    return entries


def _unusable(path: Path, error: OSError) -> JournalError:
    return JournalError(f"{path} cannot be used ({os.strerror(error.errno or 0)})")


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalError(
            f"{path} is written to by another run: wait, or choose another"
        ) from None


def _line(entry: Entry) -> bytes:
    told = orjson.dumps(asdict(entry))
    return _hash(told) + b" " + told + b"\n"


def _hash(told: bytes) -> bytes:
    return hashlib.sha256(told).hexdigest()[:_DIGITS].encode()


def _read(whole: bytes, path: Path) -> tuple[dict[str, Entry], int]:
    """The entries, and where the last whole line ends."""
    end = whole.rfind(b"\n") + 1
    head, *lines = whole[:end].splitlines(keepends=True) or [b""]
    if head != _HEAD and not (head == b"" and _HEAD.startswith(whole)):
        raise JournalError(f"{path} is no journal of calls: choose another file")
    entries = {}
    for number, line in enumerate(lines, 2):
        entry = _entry(line)
        if entry is None and number == len(lines) + 1:
            end -= len(line)
        elif entry is None:
            raise JournalError(f"{path}:{number} is damaged: move the file away, and ask anew")
        else:
            entries[entry.key] = entry
    return entries, end


def _entry(line: bytes) -> Entry | None:
    """The entry of a line; None when it is not what was written."""
    told = line[_DIGITS + 1 : -1]
    if line[: _DIGITS + 1] != _hash(told) + b" ":
        return None
    row = orjson.loads(told)
    if not isinstance(row, dict) or set(row) != {field.name for field in fields(Entry)}:
        return None
    return Entry(**row)
