"""What a probe has asked so far: a JSON line for each answer, so that a kill costs one.

    {"probe": 1, "tasks": digest, "settings": digest}        the first line
    {"worker": id, "as": identity, "key": ..., "domain": ..., "score": 1.0, "void": null, ...}

Nothing of a question or an answer is in it. A last line that a kill cut short is dropped. What was
void is asked again when a probe goes on; so is all that was asked of a worker which is now another
(`identity`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, TypeVar

import orjson

from conductor.core import Worker
from conductor.errors import ConductorError
from conductor_build.tasks.common import Task

JOURNAL_VERSION = 1
T = TypeVar("T")


class ProbeError(ConductorError):
    """A probe cannot start, or go on, as asked. Says what to do."""


@dataclass(frozen=True)
class Asked:
    """One question to one worker, and what came of it."""

    worker: str
    identity: str
    key: str
    domain: str
    score: float | None = None
    """None: void, and then `void` says why, in a word."""
    void: str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    usd: float = 0.0


def identity(worker: Worker) -> str:
    """Tells whether answers of a worker of that id can still be taken for its own."""
    told = f"{worker.id}\n{worker.model}\n{worker.endpoint!r}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def digest_of(task: Task) -> str:
    """Of every question, in order."""
    found = hashlib.sha256()
    for place in range(len(task)):
        example = task[place]
        found.update(f"{example.key}\n{example.question}\0".encode("utf-8", "replace"))
    return found.hexdigest()[:32]


class Journal:
    """An open journal. `rows` are those that it began with."""

    def __init__(self, file: IO[bytes], rows: list[Asked], path: Path) -> None:
        self._file, self._path = file, path
        self.rows = rows

    def add(self, row: Asked) -> None:
        """Note a row; it is in the file when this returns. Raises `ProbeError` if it is not."""
        _usable(self._path, lambda: self._write(row))
        self.rows.append(row)

    def _write(self, row: Asked) -> None:
        self._file.write(_line(asdict(row)))
        self._file.flush()


@contextmanager
def opened(path: Path, tasks: str, settings: str) -> Iterator[Journal]:
    """The journal at `path`, begun or gone on with.

    Raises `ProbeError` when it is of other tasks or settings, is no journal, or cannot be written.
    """
    head: Mapping[str, object] = {"probe": JOURNAL_VERSION, "tasks": tasks, "settings": settings}
    file = _usable(path, lambda: path.open("a+b"))
    try:
        kept = _usable(path, lambda: _begun(file, head))
        yield Journal(file, _rows(kept, head, path), path)
    finally:
        with suppress(OSError):  # what could not be written was told of when it was written
            file.close()


def _begun(file: IO[bytes], head: Mapping[str, object]) -> bytes:
    """The journal's whole lines, after which the next one goes."""
    file.seek(0)
    whole = file.read()
    kept = whole[: whole.rfind(b"\n") + 1]
    file.truncate(len(kept))
    if not kept:
        file.write(_line(head))
        file.flush()
    return kept


def _usable(path: Path, work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        what = os.strerror(error.errno or 0)
        raise ProbeError(f"{path} cannot be used ({what})") from None


def _line(value: Mapping[str, object]) -> bytes:
    return orjson.dumps(value) + b"\n"


def _rows(kept: bytes, head: Mapping[str, object], path: Path) -> list[Asked]:
    if not kept:
        return []
    lines = kept.splitlines()
    names = {field.name for field in fields(Asked)}
    try:
        first, *rest = (orjson.loads(line) for line in lines)
    except orjson.JSONDecodeError:
        raise ProbeError(f"{path} is damaged: move it away, or choose another --out") from None
    if first != head:
        raise ProbeError(
            f"{path} is of a probe with other questions or settings: move it away to begin anew, "
            "or choose another --out"
        )
    if not all(isinstance(row, dict) and names == set(row) for row in rest):
        raise ProbeError(f"{path} is damaged: move it away, or choose another --out")
    return [Asked(**row) for row in rest]
