"""Writing the log: records chained and made durable, segments closed, checkpoints signed.

Everything here blocks, for one thread at a time; `log.py` has the thread. A checkpoint is signed
only over records that are durable, so that no two of ours can ever contradict each other. Every
segment but the first of a log begins with one, so that a log can be read, and proven, from any
segment on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from conductor.audit.keys import AuditKey, new_origin, promote, same
from conductor.audit.merkle import Frontier
from conductor.audit.record import ChainEnd, Fields, Moment, hash_line, seal
from conductor.audit.resume import Stand, find_end, find_seal, unsealed, was_sealed
from conductor.audit.seal import CHECKPOINT, KEY_ROTATED, SEALED, Seal
from conductor.audit.segments import (
    Segment,
    first_record,
    is_sealed,
    lock,
    publish_note,
    segment_path,
)
from conductor.errors import AuditError

SEGMENT_BYTES = 256 << 20

Record = tuple[str, Fields, Moment]


class Writer:
    """The end of one log. Methods raise `OSError` when the disk fails; nothing has then moved on,
    and `reopen` is to be called before the next try."""

    def __init__(self, directory_fd: int, stand: Stand, key: AuditKey | None, segment_bytes: int):
        self.directory = stand.segment.path.parent
        self.end = stand.end
        self.seal: Seal | None = None
        self.commits = 0
        self.unsigned = 0
        """Records since the last checkpoint."""
        self.last = now()
        """The moment of the last record. No later record may have an earlier one."""
        self._directory_fd = directory_fd
        self._segment = stand.segment
        self._segment_bytes = segment_bytes
        self._boot_id = _boot_id()
        self._day = _day_of(stand.segment)
        self._resume(stand, key)

    @classmethod
    def open(
        cls, directory: Path, key: AuditKey | None, segment_bytes: int, first: Mapping[str, Fields]
    ) -> Writer:
        """Lock the directory, cut back what a crash tore, seal the log if it is not, and write the
        records `first` (fields by event).

        Raises:
            AuditError: somebody else writes this log, it is damaged or not as it was left, the
                key does not fit, or it cannot be written.
        """
        with contextlib.ExitStack() as undo:
            directory_fd = lock(directory)
            undo.callback(os.close, directory_fd)
            try:
                stand = find_end(directory, directory_fd)
                undo.callback(stand.segment.close)
                stand.segment.reopen()
                writer = cls(directory_fd, stand, key, segment_bytes)
                begun = [(event, fields, now()) for event, fields in first.items()]
                writer.append([*writer._opening(), *begun, *told_torn(stand.torn)])
                writer.checkpoint(now())
                if writer.seal is not None and key is not None and writer.seal.key is not key:
                    promote(writer.seal.key)  # a rotation that broke off after it was recorded
            except OSError as error:
                raise AuditError(f"the audit log cannot be opened: {reason(error)}") from None
            undo.pop_all()
        return writer

    def append(self, records: Sequence[Record]) -> None:
        """Chain, write and sync; the chain moves on only when all of it is durable."""
        if not records:
            return
        if self._is_full(records):
            self._segment, self._day = self._next_segment(), ""
        note = None
        if self.seal is not None and self._segment.good_bytes == 0 and self.end.seq > 0:
            note = self.seal.note()
            records = [(CHECKPOINT, self.seal.checkpoint(note), records[0][2]), *records]
        self._commit(records, note)

    def checkpoint(self, moment: Moment) -> None:
        """Sign the tree of all that is durable, record that, and put it out for anchoring. Does
        nothing when nothing is new."""
        if self.seal is not None and self.unsigned:
            note = self.seal.note()
            self._commit([(CHECKPOINT, self.seal.checkpoint(note), moment)], note)

    def rotate_key(self, successor: AuditKey) -> None:
        """Hand the log over to `successor`, under signatures of both keys.

        Raises:
            AuditError: the log is not sealed, or sealed with that key already.
        """
        if self.seal is None or same(self.seal.key.public, successor.public):
            raise AuditError("there is no key to be rotated, or it is the same one")
        self.checkpoint(now())
        fields, following = self.seal.handed_over(successor)
        self._commit([(KEY_ROTATED, fields, now())], None, following)
        self.checkpoint(now())

    def reopen(self) -> None:
        """Go back to what is durable after a failure."""
        self._segment.reopen()

    def close(self) -> None:
        """Let go of the log; writes nothing."""
        self._segment.close()
        os.close(self._directory_fd)

    @property
    def segment(self) -> Path:
        """The one being written."""
        return self._segment.path

    def _resume(self, stand: Stand, key: AuditKey | None) -> None:
        sealed = is_sealed(self.directory)
        if key is None:
            if sealed:
                raise AuditError("the audit log is sealed and no key was given: nothing is added")
        elif sealed:
            self.seal = find_seal(self.directory, stand, key)
        elif was_sealed(self.directory, key):
            raise AuditError(
                "the audit log that this key sealed is gone, or its seal is: put it back, or move "
                "the key away too, with the folder that it is in, to begin a new log"
            )
        elif stand.end.seq:
            self.seal = unsealed(self.directory, stand, key)
        else:
            self.seal = Seal.of(key, new_origin(key.public), Frontier())
        self._names_itself = self.seal is not None and not sealed

    def _opening(self) -> list[Record]:
        return [(SEALED, self.seal.opening, self.last)] if self.seal and self._names_itself else []

    def _commit(
        self, records: Sequence[Record], note: str | None, following: Seal | None = None
    ) -> None:
        chain_key = self.seal.chain_key if self.seal is not None else None
        end, lines = self.end, []
        for event, fields, moment in records:
            line = seal(end, event, fields, moment, self._boot_id, chain_key)
            lines.append(line)
            end = ChainEnd(end.seq + 1, hash_line(line))
        self._segment.append(b"\n".join(lines) + b"\n")
        self.end, self.last = end, records[-1][2]
        self.commits += 1
        self._day = self._day or records[0][2].ts[:10]
        if self.seal is not None:
            self.seal = (following or self.seal).grown(lines)
            # The checkpoint's own record, which is the first, needs no other: it is signed.
            self.unsigned = self.unsigned + len(lines) if note is None else len(lines) - 1
        if note is not None:
            self._publish(note)

    def _publish(self, note: str) -> None:
        """For anchoring; and beside the key, where whoever reaches only the log cannot follow."""
        publish_note(self.directory, note)
        if self.seal is not None and self.seal.key.folder is not None:
            publish_note(self.seal.key.folder, note)

    def _is_full(self, records: Sequence[Record]) -> bool:
        if self._segment.good_bytes >= self._segment_bytes:
            return True
        # Only forwards: a clock that is set back opens no segment.
        return bool(self._day) and records[0][2].ts[:10] > self._day

    def _next_segment(self) -> Segment:
        path = self._segment.path
        number = int(path.stem.partition("-")[2]) + 1
        following = Segment(self._directory_fd, segment_path(path.parent, number), 0)
        following.reopen()
        self._segment.close()
        return following


def told_torn(torn: bytes) -> list[Record]:
    """The record of what a crash tore."""
    if not torn:
        return []
    note: Fields = {"cut_bytes": len(torn), "cut_sha256": hash_line(torn)}
    return [("log_recovered", {**note, "lost": 0, "reason": "torn"}, now())]


def now() -> Moment:
    return Moment(time.time_ns(), time.monotonic_ns())


def reason(error: OSError) -> str:
    """`ENOSPC` and the like: the name only, never the path."""
    return errno.errorcode.get(error.errno or 0, "EIO")


def _day_of(segment: Segment) -> str:
    if segment.good_bytes == 0:
        return ""
    record = first_record(segment.path)
    return "" if record is None else str(record["ts"])[:10]


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Without it monotonic times of two runs cannot be compared, so no two may look alike.
        return str(uuid.uuid4())
