"""Whether an answer from the audit log is complete, and when it may not be called so."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor.audit.segments import segments
from conductor.audit.stretch import Coverage, Stretch, Trust
from support.recordedlog import RecordedLog


@pytest.fixture
def log(tmp_path: Path) -> RecordedLog:
    made = RecordedLog(tmp_path / "audit")
    made.add("2026-07-01", "start")
    for day in range(10, 20):
        made.request(f"2026-07-{day}", str(day), sent={"us": "internal"})
    return made


def coverage(
    log: RecordedLog, since: str | None = None, until: str | None = None, head: str | None = None
) -> Coverage:
    begin, end = (f"{time}:00.000Z" if time else None for time in (since, until))
    stretch = Stretch(log.directory, begin, end, Trust(head))
    for _ in stretch.entries():
        pass
    return stretch.coverage()


def codes(found: Coverage) -> list[str]:
    return [gap.code for gap in found.gaps]


def test_a_stretch_inside_a_whole_log_is_complete(log: RecordedLog) -> None:
    found = coverage(log, "2026-07-12T00:00", "2026-07-14T00:00")
    assert found.complete and found.contiguous
    assert (found.records, found.first_seq, found.last_seq) == (6, 8, 13)
    assert (found.head, found.head_seq) == (log.end.hash, log.end.seq)


def test_an_empty_stretch_inside_a_whole_log_is_complete(log: RecordedLog) -> None:
    found = coverage(log, "2026-07-03T00:00", "2026-07-04T00:00")
    assert found.complete and found.records == 0 and found.first_seq is None


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (None, None, []),
        ("2026-06-30T00:00", "2026-07-12T00:00", ["begins_late"]),
        ("2026-07-01T00:00", "2026-07-19T00:00", []),
        ("2026-07-12T00:00", "2026-07-20T00:00", ["ends_early"]),
        ("2026-06-01T00:00", "2026-08-01T00:00", ["begins_late", "ends_early"]),
        ("2026-08-01T00:00", None, []),
    ],
)
def test_a_log_says_nothing_of_the_time_before_and_after_it(
    log: RecordedLog, since: str | None, until: str | None, expected: list[str]
) -> None:
    assert codes(coverage(log, since, until)) == expected


def test_a_changed_byte_takes_completeness_from_every_stretch(log: RecordedLog) -> None:
    (path,) = segments(log.directory)
    path.write_bytes(path.read_bytes().replace(b'"label":"internal"', b'"label":"innernal"', 1))
    found = coverage(log, "2026-07-12T00:00", "2026-07-14T00:00")
    assert not found.verified and not found.complete and "chain" in codes(found)


def test_what_stands_behind_a_changed_record_is_not_answered_from(log: RecordedLog) -> None:
    (path,) = segments(log.directory)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:10], *lines[11:]]))
    stretch = Stretch(log.directory, None, None)
    assert [entry.record["seq"] for entry in stretch.entries()] == list(range(1, 11))


def test_a_cut_end_is_found_out_by_a_head_noted_earlier(log: RecordedLog) -> None:
    (path,) = segments(log.directory)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-6]))
    assert coverage(log).complete  # the chain alone cannot tell
    found = coverage(log, head=log.end.hash)
    assert codes(found) == ["head"] and found.anchored is False


def test_a_head_noted_earlier_anchors_the_answer(log: RecordedLog) -> None:
    noted = log.end.hash
    log.add("2026-07-30", "stop")
    found = coverage(log, head=noted)
    assert found.complete and found.anchored is True


def test_records_that_were_lost_in_the_stretch_are_said(log: RecordedLog) -> None:
    log.add("2026-07-21", "log_recovered", lost=4, reason="ENOSPC")
    log.add("2026-07-22", "log_recovered", lost=0, reason="torn")
    log.add("2026-07-25", "stop")
    assert codes(coverage(log, "2026-07-21T00:00", "2026-07-23T00:00")) == ["lost"]
    assert coverage(log, "2026-07-22T00:00", "2026-07-23T00:00").complete


def test_a_clock_set_back_matters_only_where_a_bound_lies_in_it(log: RecordedLog) -> None:
    log.add("2026-07-21T12:00", "decision")
    log.add("2026-07-21T10:00", "decision")
    log.add("2026-07-25", "stop")
    assert codes(coverage(log, "2026-07-21T11:00", "2026-07-22T00:00")) == ["clock"]
    assert codes(coverage(log, "2026-07-20T00:00", "2026-07-21T11:00")) == ["clock"]
    assert codes(coverage(log, "2026-07-20T00:00", "2026-07-21T12:00")) == ["clock"]
    assert coverage(log, "2026-07-21T00:00", "2026-07-22T00:00").complete
    assert coverage(log, "2026-07-12T00:00", "2026-07-14T00:00").complete


def test_a_log_in_use_is_answered_from_as_far_as_it_was_proven(log: RecordedLog) -> None:
    stretch = Stretch(log.directory, None, None)
    proven = log.end
    log.request("2026-07-30", "later", sent={"us": "internal"})
    assert [e.record["seq"] for e in stretch.entries()][-1] == proven.seq
    assert stretch.coverage().head == proven.hash
