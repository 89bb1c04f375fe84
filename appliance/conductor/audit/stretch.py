"""A stretch of the log between two times: every record of it, and whether these are all there were.

The log is proven first (`verify.py`), then read again up to the record that was proven last, so
that nothing unproven is ever answered from. What the log itself cannot show is said: that it
begins too late or ends too early, that records were lost, that the clock was set back.

Times are half-open: `since` belongs to the stretch, `until` no longer does. Memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from conductor.audit.record import MAX_RECORD_BYTES, hash_line
from conductor.audit.segments import latest_note, segments
from conductor.audit.verify import Report, verify
from conductor.audit.whole import Parts, Torn
from conductor.errors import AuditError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from conductor.audit.checkpoint import Note

FIRST_TS = "0000-01-01T00:00:00.000Z"
LAST_TS = "9999-12-31T23:59:59.999Z"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record, made whole, and its line as it stands in the log. `inside`: it belongs to the
    stretch; the others before and after it are there because what they say may explain those
    inside."""

    record: dict[str, Any]
    line: bytes
    inside: bool


@dataclass(frozen=True)
class Gap:
    """One reason why something may be missing from the stretch."""

    code: str
    explanation: str


@dataclass(frozen=True)
class Trust:
    """What an auditor has from elsewhere, which the log must agree with: see `verify`."""

    head: str | None = None
    key: Ed25519PublicKey | None = None
    anchors: tuple[Note, ...] = ()


NOTHING_NOTED = Trust()


@dataclass(frozen=True)
class Coverage:
    """What the log proves about a stretch of it."""

    since: str | None
    """None: from the log's first record on."""
    until: str | None
    """None: to the log's last record."""
    records: int
    first_seq: int | None
    last_seq: int | None
    first_prev: str | None
    """What the first record of the stretch continues."""
    last_hash: str | None
    """Hash of the last record of the stretch."""
    contiguous: bool
    """Numbers of the records inside follow each other without a step."""
    head_seq: int
    head: str
    """The last record that was proven, and its hash: every hash of the stretch leads to it."""
    log_from: str | None
    log_until: str | None
    verified: bool
    anchored: bool | None
    """Whether the heads and checkpoints noted earlier are part of the log; None when none was
    given."""
    signed_to: int
    """The last record under a signed checkpoint; 0 when there is none."""
    unclean_ends: int
    """Runs that ended without a `stop`. What they sent is recorded; how it ended may not be."""
    gaps: tuple[Gap, ...]

    @property
    def complete(self) -> bool:
        """Nothing that was recorded in the stretch is missing from it, and this is proven."""
        return self.verified and not self.gaps

    def as_json(self) -> dict[str, Any]:
        return {"complete": self.complete, **asdict(self)}


class Stretch:
    """Read a log between two times. `entries` streams it; `coverage` then says what it proves."""

    def __init__(
        self,
        directory: Path,
        since: str | None = None,
        until: str | None = None,
        trust: Trust = NOTHING_NOTED,
    ) -> None:
        """Proves the whole log, which takes about 10 s for each million records.

        Raises:
            AuditError: there is no log, or it cannot be read.
        """
        self._directory = directory
        self.proof: Report = verify(directory, trust.head, trust=trust.key, anchors=trust.anchors)
        self.since, self.until = since, until
        self._torn = Torn()
        self._seen = _Seen(frozenset({since or FIRST_TS, until or LAST_TS}))

    def entries(self) -> Iterator[Entry]:
        """Every proven record, oldest first. May be read once.

        Raises:
            AuditError: the log is no longer what was proven a moment ago.
        """
        since, until, line = self.since or FIRST_TS, self.until or LAST_TS, b""
        parts = Parts()
        for line, record in _proven(self._directory, self.proof.records):
            inside = since <= record["ts"] < until
            whole = parts.take(record)
            self._seen.note(record, line, inside=inside)
            self._torn.note(record, inside=inside, torn=whole.torn)
            yield Entry(whole.record, line, inside)
        if self.proof.records and hash_line(line) != self.proof.head:
            raise AuditError(
                "the audit log changed while it was read: run `conductor audit verify`"
            )

    def coverage(self) -> Coverage:
        """What is proven of the stretch. Call it when `entries` has been read to its end."""
        seen, proof = self._seen, self.proof
        return Coverage(
            since=self.since,
            until=self.until,
            records=seen.inside,
            first_seq=seen.first_seq,
            last_seq=seen.last_seq,
            first_prev=seen.first_prev,
            last_hash=hash_line(seen.last_line) if seen.last_line else None,
            contiguous=seen.contiguous,
            head_seq=seen.seq,
            head=proof.head,
            log_from=proof.first_ts,
            log_until=proof.last_ts,
            verified=proof.ok,
            anchored=_anchored(proof),
            signed_to=proof.sealing.signed_to if proof.sealing else 0,
            unclean_ends=seen.unclean_ends,
            gaps=tuple(self._gaps()),
        )

    def latest_checkpoint(self) -> str | None:
        """The signed checkpoint written last, for who keeps what was read; None in a log without
        seal."""
        return latest_note(self._directory)

    def _gaps(self) -> Iterator[Gap]:
        proof, seen = self.proof, self._seen
        if proof.tampering is not None:
            where = proof.tampering
            yield Gap("chain", f"the log cannot be trusted from record {where.seq} on")
        if proof.head_found is False:
            yield Gap("head", "the given head is not part of this log: it was cut or rewritten")
        if proof.trusted is False:
            yield Gap("key", "no checkpoint of this log is signed by the given key")
        for anchor in proof.anchors:
            if anchor.state != "holds":
                yield Gap(
                    "anchor", f"the checkpoint of {anchor.size} records {_STATES[anchor.state]}"
                )
        if self.since and (proof.first_ts or LAST_TS) > self.since:
            yield Gap("begins_late", f"the log begins at {proof.first_ts or '-'}")
        if self.until and (proof.last_ts or FIRST_TS) < self.until:
            yield Gap("ends_early", f"the log ends at {proof.last_ts or '-'}")
        if seen.lost:
            yield Gap("lost", f"{seen.lost} records could not be written; their requests failed")
        if self._torn.inside:
            yield Gap("torn", f"of {self._torn.inside} records some parts (event more) are missing")
        if seen.unclear_bounds:
            bounds = " and ".join(sorted(seen.unclear_bounds))
            yield Gap("clock", f"the clock was set back over {bounds}: which side is not certain")


_STATES = {
    "differs": "is not of this log: it was written anew",
    "cut": "shows that the end of this log was cut off",
    "removed": "is older than what is left of this log",
    "unsigned": "is signed by no key of this log",
}


def _anchored(proof: Report) -> bool | None:
    """Whether everything noted elsewhere is part of the log; None when nothing was given."""
    states = [anchor.state == "holds" for anchor in proof.anchors]
    states += [] if proof.head_found is None else [proof.head_found]
    return all(states) if states else None


class _Seen:
    """What was noted of the records on the way."""

    def __init__(self, bounds: frozenset[str]) -> None:
        self.seq = 0
        self.inside = 0
        self.first_seq: int | None = None
        self.last_seq: int | None = None
        self.first_prev: str | None = None
        self.last_line = b""
        self.contiguous = True
        self.lost = 0
        self.unclean_ends = 0
        self.unclear_bounds: set[str] = set()
        self._bounds = bounds
        self._latest = FIRST_TS
        self._running = False

    def note(self, record: dict[str, Any], line: bytes, *, inside: bool) -> None:
        self.seq = record["seq"]
        self._clock(record["ts"])
        if inside:
            self._inside(record, line)
        event = record["event"]
        if event == "start":
            self.unclean_ends += self._running and inside
            self._running = True
        elif event == "stop":
            self._running = False

    def _clock(self, ts: str) -> None:
        """A clock that ran back over a bound of the stretch leaves unclear what lay on which side
        of it. Anywhere else it does no harm."""
        if ts < self._latest:
            self.unclear_bounds |= {b for b in self._bounds if ts < b <= self._latest}
        else:
            self._latest = ts

    def _inside(self, record: dict[str, Any], line: bytes) -> None:
        if self.last_seq is None:
            self.first_seq, self.first_prev = self.seq, record["prev"]
        elif self.seq != self.last_seq + 1:
            self.contiguous = False
        self.inside += 1
        self.last_seq, self.last_line = self.seq, line
        if record["event"] == "log_recovered" and isinstance(record.get("lost"), int):
            self.lost += record["lost"]


def _proven(directory: Path, count: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The first `count` records with their lines, without newlines."""
    left = count
    for path in segments(directory):
        with path.open("rb") as file:
            for line in _lines(file, left):
                left -= 1
                yield line, _record(line)
        if not left:
            return
    raise AuditError("the audit log was cut while it was read: run `conductor audit verify`")


def _lines(file: BinaryIO, most: int) -> Iterator[bytes]:
    while most and (line := file.readline(MAX_RECORD_BYTES + 1)):
        most -= 1
        yield line.removesuffix(b"\n")


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
        record["ts"], record["event"], record["seq"], record["prev"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise AuditError("the audit log is damaged: run `conductor audit verify`") from None
    return dict(record)
