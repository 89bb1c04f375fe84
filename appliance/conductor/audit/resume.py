"""Where a log stands when it is opened: its end, and for a sealed one its tree and its key.

The tree is taken from the last checkpoint record, and what follows that is read again, each record
under the key of the chain: a tail that somebody else wrote while the appliance was off is found
before anything is added to it. A log that was begun without a key is read from its start, once.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor.audit.checkpoint import (
    MALFORMED,
    Checkpoint,
    read_checkpoint,
    read_note,
    read_verifier_key,
)
from conductor.audit.handover import first_key
from conductor.audit.keys import AuditKey, new_origin, same
from conductor.audit.merkle import Frontier, leaf_hash
from conductor.audit.record import ChainEnd, hash_line, mac_holds, parse
from conductor.audit.seal import CHECKPOINT, KEY_ROTATED, SEALED, Seal
from conductor.audit.segments import (
    Segment,
    Tail,
    chain_end,
    latest_note,
    read_tail,
    segment_path,
    segments,
)
from conductor.errors import AuditError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_MARK = b'"event":"checkpoint"'


@dataclass(frozen=True)
class Stand:
    """The segment to go on with, where its chain stands, and what a crash tore."""

    segment: Segment
    end: ChainEnd
    torn: bytes


def find_end(directory: Path, directory_fd: int) -> Stand:
    """Raises `AuditError` when the end is damaged beyond what a crash can do."""
    existing = segments(directory)
    if not existing:
        return Stand(Segment(directory_fd, segment_path(directory, 1), 0), ChainEnd(), b"")
    tails = [read_tail(path) for path in existing[-2:]]
    # A crash between creating a segment and writing to it leaves the end one segment back.
    last_line = next((tail.last_line for tail in reversed(tails) if tail.last_line), None)
    if last_line is None and len(existing) > 1:
        raise AuditError("the last two audit segments are empty: run `conductor audit verify`")
    end = ChainEnd() if last_line is None else chain_end(last_line)
    tail: Tail = tails[-1]
    return Stand(Segment(directory_fd, existing[-1], tail.good_bytes), end, tail.torn)


def find_seal(directory: Path, stand: Stand, key: AuditKey) -> Seal:
    """The seal of the sealed log that `stand` is the end of.

    Raises:
        AuditError: `key` is not the one that counts, or the log is not as its writer left it.
    """
    lines = _Lines(directory, stand.segment.good_bytes)
    start = lines.from_last_checkpoint()
    replay = _Replay(key)
    for line in lines.after(start):
        replay.take(line)
    if replay.end != stand.end:
        raise _not_ours("do not continue one another")
    if replay.seal is None:
        raise _not_ours("have lost their seal")
    _not_cut(directory, replay.seal, replay.signed)
    return replay.seal


def was_sealed(directory: Path, key: AuditKey) -> bool:
    """Whether checkpoints were signed for a log here, or with this key for a log elsewhere."""
    return any(latest_note(folder) is not None for folder in _note_folders(directory, key))


def unsealed(directory: Path, stand: Stand, key: AuditKey) -> Seal:
    """A seal to begin with, for a log that has none: over all that was written without one."""
    tree = Frontier()
    for line in _Lines(directory, stand.segment.good_bytes).after(None):
        tree.append(leaf_hash(line))
    if tree.size != stand.end.seq:
        raise AuditError("the audit log has gaps: run `conductor audit verify` before sealing it")
    return Seal.of(key, new_origin(key.public), tree)


@dataclass(frozen=True)
class _Place:
    path: Path
    offset: int


class _Lines:
    """The durable lines of a log, without their newlines."""

    def __init__(self, directory: Path, good_bytes: int) -> None:
        self._paths = segments(directory)
        self._good_bytes = good_bytes

    def from_last_checkpoint(self) -> _Place | None:
        """Where the last checkpoint record begins, found backwards: it is never far."""
        for path in reversed(self._paths):
            offset = _last_checkpoint(path, self._end(path))
            if offset is not None:
                return _Place(path, offset)
        return None

    def after(self, place: _Place | None) -> Iterator[bytes]:
        """From `place` on, or from the start of what is there."""
        paths = self._paths if place is None else self._paths[self._paths.index(place.path) :]
        for number, path in enumerate(paths):
            with path.open("rb") as file:
                if place is not None and number == 0:
                    file.seek(place.offset)
                left = self._end(path) - file.tell()
                for line in file:
                    left -= len(line)
                    if left < 0:
                        break
                    yield line.removesuffix(b"\n")

    def _end(self, path: Path) -> int:
        return self._good_bytes if path == self._paths[-1] else path.stat().st_size


def _last_checkpoint(path: Path, end: int) -> int | None:
    if end == 0:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        while (mark := data.rfind(_MARK, 0, end)) >= 0:
            start = data.rfind(b"\n", 0, mark) + 1
            record = parse(data[start : data.find(b"\n", mark)])
            if record is not None and record["event"] == CHECKPOINT:
                return start
            end = start  # the words stood inside some other record
    return None


class _Replay:
    """Reads records that the appliance wrote, from a checkpoint or the very start on."""

    def __init__(self, key: AuditKey) -> None:
        self._key = key
        self.seal: Seal | None = None
        self.end: ChainEnd | None = None
        self.signed: Checkpoint | None = None
        """The last checkpoint among them."""
        self._before = Frontier()

    def take(self, line: bytes) -> None:
        record = parse(line)
        if record is None:
            raise _not_ours("hold a line that is no record")
        if self.end is not None and (record["seq"], record["prev"]) != (
            self.end.seq + 1,
            self.end.hash,
        ):
            raise _not_ours("do not continue one another")
        self._seal_by(record)
        if self.seal is not None and not mac_holds(record, self.seal.chain_key):
            raise _not_ours("were not written with its key")
        self.end = ChainEnd(record["seq"], hash_line(line))
        self._grow(line, record)

    def _seal_by(self, record: dict[str, Any]) -> None:
        """What this record says of key and tree before it is counted itself."""
        try:
            if self.seal is None and record["event"] == SEALED:
                line = first_key(record["origin"], record["vkey"])
                self.seal = Seal.of(self._mine(line.current), line.origin, self._before)
            elif self.seal is None and record["event"] == CHECKPOINT:
                self.seal = self._at_checkpoint(record)
            if record["event"] == CHECKPOINT:
                self.signed = read_checkpoint(read_note(record["note"]))
        except MALFORMED:
            raise _not_ours("hold a seal that cannot be read") from None

    def _at_checkpoint(self, record: dict[str, Any]) -> Seal:
        note = read_note(record["note"])
        said = read_checkpoint(note)
        key = self._mine(read_verifier_key(record["vkey"])[1])
        tree = Frontier.from_hex(record["seq"] - 1, record["frontier"])
        if said.root != tree.root or said.size != tree.size:
            raise _not_ours("hold a checkpoint of another tree")
        if not note.signed_by(said.origin, key.public):
            raise _not_ours("hold a checkpoint that its key did not sign")
        return Seal.of(key, said.origin, tree, tuple(record["handovers"]))

    def _grow(self, line: bytes, record: dict[str, Any]) -> None:
        if self.seal is None:
            self._before.append(leaf_hash(line))
            return
        if record["event"] == KEY_ROTATED:
            self.seal = self._rotated(self.seal, record)
        self.seal = self.seal.grown([line])

    def _rotated(self, seal: Seal, record: dict[str, Any]) -> Seal:
        try:
            keys = first_key(seal.origin, seal.opening["vkey"]).after(record["note"])
        except MALFORMED:
            raise _not_ours("hold a hand-over that cannot be read") from None
        handovers = (*seal.handovers, record["note"])
        return Seal.of(self._mine(keys.current), seal.origin, seal.tree, handovers)

    def _mine(self, public: Ed25519PublicKey) -> AuditKey:
        for key in (self._key, self._key.successor):
            if key is not None and same(key.public, public):
                return key
        raise AuditError(
            "the audit log is sealed with another key than the one given: put that key in place"
        )


def _note_folders(directory: Path, key: AuditKey) -> list[Path]:
    return [directory] if key.folder is None else [directory, key.folder]


def _not_cut(directory: Path, seal: Seal, last: Checkpoint | None) -> None:
    """The latest checkpoint, kept beside the log and beside its key, must not know of more than
    there is. One that cannot be read accuses nobody: it might as well have been removed."""
    for folder in _note_folders(directory, seal.key):
        try:
            note = read_note(latest_note(folder) or "")
            said = read_checkpoint(note)
        except ValueError:
            continue
        if not note.signed_by(seal.origin, seal.key.public):
            continue
        rewritten = last is not None and last.size == said.size and last.root != said.root
        if rewritten or said.size > seal.tree.size:
            raise _not_ours("end before the checkpoint that was signed last")


def _not_ours(how: str) -> AuditError:
    return AuditError(
        f"the last records of the audit log {how}: somebody changed it while the appliance was "
        "off. Run `conductor audit verify`, keep the log as evidence, and begin a new one elsewhere"
    )
