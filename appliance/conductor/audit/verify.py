"""Checking an audit log offline: every hash, every number, both clocks, in bounded memory.

A hash chain alone proves that nothing inside it was changed; it cannot prove that its end was not
cut, nor that it was not written anew from the start. A head noted elsewhere proves both for
everything up to it: pass it as `expect_head`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson

from conductor.audit.record import GENESIS, MAX_RECORD_BYTES, canonical, hash_line
from conductor.audit.segments import read_tail, segments
from conductor.errors import AuditError

Kind = Literal["json", "sequence", "hash", "time"]

EVENTS = ("start", "stop", "log_recovered", "decision", "round", "egress", "outcome")
"""What is recorded: a process that starts and ends, and a log that had to be recovered; for each
request its decision, that of every further round, each thing sent abroad, and how it ended."""
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

    @property
    def ok(self) -> bool:
        return self.tampering is None and self.head_found is not False

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def verify(directory: Path, expect_head: str | None = None) -> Report:
    """Read the whole log and check it. Takes no lock: the log may be in use.

    Raises:
        AuditError: there is no log here, or it cannot be read.
    """
    try:
        paths = segments(directory)
        if not paths:
            raise AuditError("no audit log is here: give the directory that holds audit-*.jsonl")
        return _Check(expect_head).run(paths)
    except OSError as error:
        raise AuditError(f"the audit log cannot be read: {error.strerror}") from None


class _Check:
    """The state carried from line to line."""

    def __init__(self, expect_head: str | None) -> None:
        self._expect = expect_head.lower() if expect_head else None
        self._found = self._expect == GENESIS
        self._records = 0
        self._events = Counter(dict.fromkeys(EVENTS, 0))
        self._head = GENESIS
        self._first_ts: str | None = None
        self._last: dict[str, Any] = {}
        self._set_back = 0

    def run(self, paths: list[Path]) -> Report:
        # Taken first: what a running appliance appends meanwhile is not looked at.
        good, torn = _good_end(paths[-1])
        for path in paths:
            with path.open("rb") as file:
                limit = good if path == paths[-1] else path.stat().st_size
                for number, line in enumerate(_lines(file, limit), 1):
                    fault = self._take(line)
                    if fault is not None:
                        kind, explanation = fault
                        where = Tampering(kind, self._records + 1, path.name, number, explanation)
                        return self._report(where, torn)
        return self._report(None, torn)

    def _take(self, line: bytes) -> tuple[Kind, str] | None:
        record = _parse(line)
        if record is None:
            return "json", "the line is no canonical audit record"
        if record["seq"] != self._records + 1:
            return "sequence", f"the record numbered {record['seq']} stands here"
        if record["prev"] != self._head:
            return "hash", "it does not continue the record before it: one of the two was changed"
        if not self._in_time(record):
            return "time", "its monotonic time lies before that of the record before it"
        self._records += 1
        self._events[record["event"] if record["event"] in EVENTS else OTHER] += 1
        self._head = hash_line(line[:-1])
        self._found = self._found or self._head == self._expect
        self._first_ts = self._first_ts or record["ts"]
        self._last = record
        return None

    def _in_time(self, record: dict[str, Any]) -> bool:
        if record["boot_id"] != self._last.get("boot_id"):
            return True
        if record["ts"] < self._last["ts"]:
            self._set_back += 1
        return bool(record["mono_ns"] >= self._last["mono_ns"])

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


def _parse(line: bytes) -> dict[str, Any] | None:
    """The record, or None when the line is not exactly the canonical form of one."""
    try:
        record = orjson.loads(line)
        exact = canonical(record) + b"\n" == line
    except (orjson.JSONDecodeError, TypeError):
        return None
    if not exact or not isinstance(record, dict):
        return None
    text = all(isinstance(record.get(key), str) for key in ("prev", "ts", "boot_id", "event"))
    count = all(type(record.get(key)) is int for key in ("seq", "mono_ns"))
    return record if text and count else None
