"""Removing what is older than has to be kept, so that the rest stays provable.

A segment goes as a whole, oldest first, and only once the next one begins with a checkpoint: that
holds the subtree hashes of everything before it, under a signature. First a record says what goes,
with the root of the tree and the head of the chain at its end, and is signed over; then the file.

A file named `legal-hold` in the log's folder stops this for as long as it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from conductor.audit.checkpoint import MALFORMED, read_checkpoint, read_note
from conductor.audit.record import ChainEnd, Fields, Moment
from conductor.audit.seal import CHECKPOINT, SEGMENT_REMOVED
from conductor.audit.segments import MAX_BATCH, chain_end, first_record, read_tail, segments
from conductor.audit.writer import Writer
from conductor.errors import AuditError

RETENTION_DAYS = 400
LEGAL_HOLD = "legal-hold"

_DAY_NS = 86_400 * 1_000_000_000


@dataclass(frozen=True)
class Expired:
    """A segment that may go: its file, and what the next one says of its end."""

    path: Path
    first_seq: int
    last_seq: int
    first_ts: str
    last_ts: str
    """When it was closed: no record in it is later."""
    head: str
    root: str

    @property
    def record(self) -> Fields:
        """What stays of it in the log."""
        return {
            "segment": self.path.name,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "first_ts": self.first_ts,
            "last_ts": self.last_ts,
            "head": self.head,
            "root": self.root,
        }


def expired(directory: Path, retention_days: int, moment: Moment) -> list[Expired]:
    """The segments that were closed more than `retention_days` before `moment`, oldest first. None
    when that is 0, or under a legal hold. Raises `OSError`, and `AuditError` for a damaged log."""
    if not retention_days or (directory / LEGAL_HOLD).exists():
        return []
    before = replace(moment, wall_ns=moment.wall_ns - retention_days * _DAY_NS).ts
    return list(_closed_before(directory, before))


def _closed_before(directory: Path, before: str) -> Iterator[Expired]:
    for path, following in pairwise(segments(directory)):
        first, after = first_record(path), first_record(following)
        if first is None or after is None or after["event"] != CHECKPOINT or after["ts"] >= before:
            return
        last_line = read_tail(path).last_line
        if last_line is None or chain_end(last_line) != ChainEnd(after["seq"] - 1, after["prev"]):
            return  # something is missing in between: that is for people to look at
        yield _expired(path, first, after)


def _expired(path: Path, first: dict[str, Any], after: dict[str, Any]) -> Expired:
    try:
        root = read_checkpoint(read_note(after["note"])).root.hex()
    except MALFORMED:
        raise AuditError("the audit log is damaged: run `conductor audit verify`") from None
    last = after["seq"] - 1
    return Expired(path, first["seq"], last, first["ts"], after["ts"], after["prev"], root)


def remove_expired(writer: Writer, retention_days: int, moment: Moment) -> list[Expired]:
    """Record and remove what has expired; returns it. Raises `OSError`.

    A crash in between leaves files that are said to be gone: they are recorded and removed again.
    """
    if writer.seal is None:
        return []
    going = expired(writer.directory, retention_days, moment)[: MAX_BATCH - 1]
    if going:
        writer.append([(SEGMENT_REMOVED, each.record, moment) for each in going])
        writer.checkpoint(moment)
    for each in going:
        each.path.unlink()
    return going


def retain(writer: Writer, retention_days: int, moment: Moment) -> list[Expired]:
    """`remove_expired` for people. Raises `AuditError` under a legal hold: they should know."""
    if (writer.directory / LEGAL_HOLD).exists():
        raise AuditError(f"a legal hold is in force ({LEGAL_HOLD} in the log's folder)")
    return remove_expired(writer, retention_days, moment)
