"""The policies that were ever in force, on disk: what the appliance starts from.

    policy/rev-00000042.json    exact bytes of revision 42, their SHA-256, who approved, when
    policy/highest              the highest revision ever put here, in digits
    policy/lock                 held by whoever may write

Revisions only grow, so the active policy is simply the copy with the highest number: putting a
file in place by one rename makes it active and keeps the one before. Killed at any moment, there
is the old one or the new one. A damaged newest copy does not bring an older policy back to life:
then there is none, and the appliance says so (`Condition`).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conductor.activation.kept import Approved, Copy, CopyDamaged, read_copy, written
from conductor.errors import StartError

FOLDER = "policy"
"""Below `paths.published`."""

_NAME = re.compile(r"rev-([0-9]{8,10})\.json")
_HIGHEST = "highest"
_LOCK = "lock"
_SHARED = stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP

Condition = Literal["active", "empty", "damaged", "rolled-back", "unreadable"]
"""`empty`: no policy was ever put here. `damaged`: the newest copy is not what was written.
`rolled-back`: copies newer than the newest are gone. `unreadable`: the folder cannot be read."""


@dataclass(frozen=True)
class Held:
    """What the store holds: the active copy, or why there is none."""

    condition: Condition
    copy: Copy | None = None
    highest: int = 0


class Store:
    """The folder of policies below `paths.published`: read by all processes, written by one. Its
    group may read what stands in it where `paths.published` was made for that (mode 2750): there
    other processes have accounts of their own."""

    def __init__(self, published: Path) -> None:
        self.folder = published / FOLDER

    def held(self) -> Held:
        """The active policy. Never raises: what cannot be read is a condition."""
        try:
            revisions = self._revisions()
            highest = self._highest(revisions)
            if not highest:
                return Held("empty")
            if not revisions or revisions[-1] < highest:
                return Held("rolled-back", highest=highest)
            return Held("active", self.copy(revisions[-1]), highest)
        except CopyDamaged:
            return Held("damaged", highest=highest)
        except (OSError, ValueError):
            return Held("unreadable")

    def active(self) -> bytes | None:
        """The bytes of the active policy, exactly as they were applied; None when there is none."""
        copy = self.held().copy
        return copy.policy if copy else None

    def copy(self, revision: int) -> Copy:
        """One policy that was in force. Raises `CopyDamaged`, also when there is no such copy."""
        return read_copy(self.path(revision), revision)

    def history(self) -> list[Copy]:
        """Every readable copy, the newest first."""
        copies = []
        for revision in reversed(self._revisions()):
            with suppress(CopyDamaged):
                copies.append(self.copy(revision))
        return copies

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Be the one writer, for as long as the context lasts. The daemon is, while it runs.

        Raises `StartError` when another process is, or when the folder cannot be made.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Whatever the umask is. A service that may not set such bits finds the folder made so.
            if _is_shared(self.folder.parent) and not _is_shared(self.folder):
                self.folder.chmod(0o2750)
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartError(f"the policy store cannot be opened: {error.strerror}") from None
        try:
            _lock(lock)
            self._sweep()
            yield Writer(self)
        finally:
            os.close(lock)

    def _sweep(self) -> None:
        """Remove what a killed writer left half written."""
        for path in self.folder.glob(".new-*"):
            path.unlink(missing_ok=True)

    def path(self, revision: int) -> Path:
        """Where the copy of a revision stands, or would."""
        return self.folder / f"rev-{revision:08d}.json"

    def _revisions(self) -> list[int]:
        """Revisions of which there is a copy, by file name, rising."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)

    def _highest(self, revisions: list[int]) -> int:
        """The highest revision ever active: noted apart, so that a copy that is gone is missed."""
        noted = 0
        with suppress(FileNotFoundError):
            noted = int((self.folder / _HIGHEST).read_text("ascii"))
        return max([noted, *revisions])


class Writer:
    """Whoever holds the store's lock."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, policy: bytes, revision: int, at: str, how: str, approved: Approved = ()) -> Copy:
        """Make `policy` the active one, durably. `at` is UTC in ISO 8601; `how` says by what:
        `apply`, `rollback`, `emergency`, `first`.

        Raises:
            StartError: the revision is not above every one before it, or the disk refused.
        """
        held = self._store.held()
        if held.condition == "unreadable" or revision <= held.highest:
            raise StartError(f"revision {revision} cannot follow {held.highest} in the store")
        copy = Copy.of(policy, revision, at, how, approved)
        path = self._store.path(revision)
        try:
            _put(path, written(copy))
        except OSError as error:
            with suppress(OSError):  # refused means refused: it must not count after a restart
                path.unlink(missing_ok=True)
            raise StartError(f"the policy cannot be kept on disk: {error.strerror}") from None
        with suppress(OSError):  # the copy's own name says the same
            _put(self._store.folder / _HIGHEST, b"%d\n" % revision)
        return copy


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise StartError(
            "another process holds the policy store: apply through the running appliance"
        ) from None


def _is_shared(published: Path) -> bool:
    with suppress(OSError):
        return published.stat().st_mode & _SHARED == _SHARED
    return False


def _put(path: Path, data: bytes) -> None:
    """Write a file that is whole or not there, and survives a power cut from here on."""
    new = path.with_name(f".new-{path.name}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if _is_shared(path.parent.parent):
            os.fchmod(descriptor, 0o640)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
