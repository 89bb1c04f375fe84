"""Checking an audit log offline: every hash, number, clock, checkpoint and key, in bounded memory.

A chain alone proves that nothing inside it was changed. A sealed log proves more: nobody without
its key wrote what a checkpoint covers. What neither can prove is that the end was not cut, or
that whoever has the key did not write all of it anew: for that, a checkpoint (or head) noted
elsewhere is needed. It proves both for everything up to it: pass it as an anchor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from conductor.audit.checkpoint import Checkpoint, Note, read_checkpoint
from conductor.audit.record import GENESIS, MAX_RECORD_BYTES, hash_line, parse
from conductor.audit.seal import CHECKPOINT, KEY_ROTATED, SEALED, SEGMENT_REMOVED
from conductor.audit.sealcheck import AnchorResult, Fault, Kind, SealCheck, Sealing
from conductor.audit.segments import first_record, read_tail, segments
from conductor.errors import AuditError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from conductor.audit.keys import AuditKey

EVENTS = (
    *("start", "stop", "log_recovered", "policy", "mode", "attestation"),
    *("approval", "decision", "round", "declassified", "egress", "outcome", "more"),
)
"""What is recorded: a process that starts and ends, a log that had to be recovered, a policy that
was to be put in force, a mode that the machine was switched to, what it could tell of its
isolation; what a person read, approved or was refused; for each request its decision, that of every
further round, each label that was lowered, each thing sent abroad, how it ended, and what had no
room in one of these records."""
SEAL_EVENTS = (SEALED, CHECKPOINT, KEY_ROTATED, SEGMENT_REMOVED)
"""What a sealed log records of itself."""
OTHER = "other"
"""In counts, for an event of another version."""


@dataclass(frozen=True)
class Tampering:
    """The first record that does not fit. `seq` is the number it should have."""

    kind: Kind
    seq: int
    segment: str
    line: int
    explanation: str


@dataclass(frozen=True)
class Report:
    """What a check found. `records`, `head` and the times cover what was proven: everything, or
    everything before the first record that does not fit."""

    records: int
    events: dict[str, int]
    """Of these, how many there are of each of `EVENTS`, and of others if there are any."""
    head: str
    first_ts: str | None
    last_ts: str | None
    tampering: Tampering | None
    torn_bytes: int
    """Bytes after the last whole line: a write under way, or a crash. No tampering."""
    clock_set_back: int
    """How often the wall clock ran backwards between two records of one boot."""
    head_found: bool | None
    """Whether the expected head is part of the chain; None when none was given."""
    first_seq: int = 1
    """Number of the first record read: more than 1 when earlier ones were removed or skipped."""
    root: str = ""
    """Of the tree of all records up to the last one proven, hex."""
    sealing: Sealing | None = None
    trusted: bool | None = None
    """Whether the key that was given stands behind the checkpoints; None when none was given."""
    anchors: tuple[AnchorResult, ...] = ()

    @property
    def ok(self) -> bool:
        return (
            self.tampering is None
            and self.head_found is not False
            and self.trusted is not False
            and all(anchor.state == "holds" for anchor in self.anchors)
        )

    @property
    def last_seq(self) -> int:
        """Number of the last record proven."""
        return self.first_seq + self.records - 1

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def verify(
    directory: Path,
    expect_head: str | None = None,
    *,
    trust: Ed25519PublicKey | None = None,
    key: AuditKey | None = None,
    anchors: Sequence[Note] = (),
    since: Note | None = None,
) -> Report:
    """Read the whole log and check it. Takes no lock: the log may be in use.

    `trust`: a public key that the reader got elsewhere, whichever of the log's keys it is. `key`:
    the private one, to check MACs too. `anchors`: checkpoints kept elsewhere. `since`: a
    checkpoint up to which the log was verified before; only what follows it is read.

    Raises:
        AuditError: there is no log here, it cannot be read, or a given note is no checkpoint.
    """
    try:
        paths = segments(directory)
        if not paths:
            raise AuditError("no audit log is here: give the directory that holds audit-*.jsonl")
        known = [note for note in (since,) if note is not None]
        seals = SealCheck(trust, key, [*anchors, *known])
        start = None if since is None else read_checkpoint(since)
        return _Check(expect_head, seals, start).run(paths)
    except OSError as error:
        raise AuditError(f"the audit log cannot be read: {error.strerror}") from None
    except ValueError:
        raise AuditError("an anchor is no checkpoint: give the signed note as written") from None


class _Check:
    """The state carried from line to line."""

    def __init__(self, expect_head: str | None, seals: SealCheck, since: Checkpoint | None) -> None:
        self._expect = expect_head.lower() if expect_head else None
        self._found = self._expect == GENESIS
        self._seals = seals
        self._since = since
        self._records = 0
        self._before = 0
        """Records before the first one read."""
        self._events = Counter(dict.fromkeys(EVENTS, 0))
        self._head = GENESIS
        self._first_ts: str | None = None
        self._last: dict[str, Any] = {}
        self._set_back = 0

    def run(self, paths: list[Path]) -> Report:
        # Taken first: what a running appliance appends meanwhile is not looked at.
        good, torn = _good_end(paths[-1])
        for path in self._to_read(paths):
            with path.open("rb") as file:
                limit = good if path == paths[-1] else path.stat().st_size
                for number, line in enumerate(_lines(file, limit), 1):
                    fault = self._take(line)
                    if fault is not None:
                        return self._report(self._place(fault, path.name, number), torn)
        missing = self._removal_unproven()
        return self._report(missing and self._place(missing, paths[0].name, 1, seq=1), torn)

    def _to_read(self, paths: list[Path]) -> list[Path]:
        """All, or those from the one on that holds the record of the checkpoint `since`."""
        if self._since is None:
            return paths
        wanted = self._since.size + 1
        begins = [(path, record["seq"]) for path in paths if (record := first_record(path))]
        earlier = [path for path, seq in begins if seq <= wanted]
        return paths[paths.index(earlier[-1]) :] if earlier else paths

    def _take(self, line: bytes) -> Fault | None:
        record = parse(line[:-1]) if line.endswith(b"\n") else None
        if record is None:
            return "json", "the line is no canonical audit record"
        if not self._records:
            if self._since is not None and record["seq"] <= self._since.size:
                return None  # was verified before
            fault = self._begin(record)
            if fault is not None:
                return fault
        fault = self._chained(record) or self._seals.take(line[:-1], record)
        if fault is None:
            self._count(line, record)
        return fault

    def _begin(self, record: dict[str, Any]) -> Fault | None:
        """The first record, when others came before it, has to be a checkpoint over them."""
        if self._since is not None and record["seq"] != self._since.size + 1:
            return "checkpoint", "the log holds no record of the checkpoint to begin from"
        if record["seq"] <= 1 or record["event"] != CHECKPOINT:
            return None
        self._before, self._head = record["seq"] - 1, record["prev"]
        return self._seals.begin(record)

    def _chained(self, record: dict[str, Any]) -> Fault | None:
        if record["seq"] != self._before + self._records + 1:
            return "sequence", f"the record numbered {record['seq']} stands here"
        if record["prev"] != self._head:
            return "hash", "it does not continue the record before it: one of the two was changed"
        if not self._in_time(record):
            return "time", "its monotonic time lies before that of the record before it"
        return None

    def _in_time(self, record: dict[str, Any]) -> bool:
        if record["boot_id"] != self._last.get("boot_id"):
            return True
        if record["ts"] < self._last["ts"]:
            self._set_back += 1
        return bool(record["mono_ns"] >= self._last["mono_ns"])

    def _count(self, line: bytes, record: dict[str, Any]) -> None:
        self._records += 1
        known = record["event"] in EVENTS or record["event"] in SEAL_EVENTS
        self._events[record["event"] if known else OTHER] += 1
        self._head = hash_line(line[:-1])
        self._found = self._found or self._head == self._expect
        self._first_ts = self._first_ts or record["ts"]
        self._last = record

    def _removal_unproven(self) -> Fault | None:
        seals = self._seals
        if self._since is not None or seals.first_seq == 1:
            return None
        if 0 < seals.removal_seq <= seals.signed_to:
            return None
        return "removed", "the records before the first are gone, and no signed record says why"

    def _place(self, fault: Fault, segment: str, line: int, seq: int = 0) -> Tampering:
        kind, explanation = fault
        return Tampering(kind, seq or self._before + self._records + 1, segment, line, explanation)

    def _report(self, tampering: Tampering | None, torn_bytes: int) -> Report:
        return Report(
            records=self._records,
            events=dict(self._events),
            head=self._head,
            first_ts=self._first_ts,
            last_ts=self._last.get("ts"),
            tampering=tampering,
            torn_bytes=torn_bytes,
            clock_set_back=self._set_back,
            head_found=self._found if self._expect else None,
            first_seq=self._before + 1,
            root=self._seals.tree.root.hex(),
            sealing=self._seals.sealing(),
            trusted=self._seals.trusted,
            anchors=self._seals.anchored(),
        )


def _good_end(path: Path) -> tuple[int, int]:
    """Bytes of the last segment that are whole lines, and bytes torn: as the writer sees it."""
    try:
        tail = read_tail(path)
    except AuditError:
        return path.stat().st_size, 0  # damage: the line by line check says where
    return tail.good_bytes, len(tail.torn)


def _lines(file: BinaryIO, limit: int) -> Iterator[bytes]:
    """Lines with their newline, up to the offset `limit`. One that is longer than any record
    comes in pieces, which are no records."""
    offset = 0
    while offset < limit and (line := file.readline(MAX_RECORD_BYTES + 1)):
        offset += len(line)
        yield line
