"""Keys handed over and segments removed: what is left stays provable, and nothing else passes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from conductor.audit import anchor, standalone
from conductor.audit.checkpoint import read_note
from conductor.audit.handover import MAX_REPEATED
from conductor.audit.keys import AuditKey, ensure, load, load_public, prepare_successor, same
from conductor.audit.log import AuditLog
from conductor.audit.record import Moment
from conductor.audit.retention import LEGAL_HOLD, expired, remove_expired
from conductor.audit.segments import CHECKPOINT_NAME, segments
from conductor.audit.upkeep import retain_now, rotate
from conductor.audit.verify import verify
from conductor.audit.writer import SEGMENT_BYTES, Writer, now
from conductor.errors import AuditError
from support.sealedlog import change, events, new_key, rechained, records, rewritten, write

KEY = new_key()
SMALL = {"max_batch": 4, "segment_bytes": 4000}
DAY_NS = 86_400 * 10**9


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "audit"


@pytest.fixture
def keys(tmp_path: Path, directory: Path) -> Path:
    ensure(tmp_path / "keys", directory)
    return tmp_path / "keys"


def later(days: int) -> Moment:
    return Moment(time.time_ns() + days * DAY_NS, time.monotonic_ns())


def independent(directory: Path, key: AuditKey, *anchors: str) -> list[str]:
    return standalone.verify(directory, key.public.public_bytes_raw(), list(anchors))[1]


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- keys -------------------------------------------------------------------------------------


async def test_a_hand_over_is_followed_from_the_old_key_and_from_the_new(
    directory: Path, keys: Path
) -> None:
    old = load(keys)
    await write(directory, old)
    new = rotate(directory, keys)
    await write(directory, load(keys))
    assert same(load(keys).public, new.public) and not same(old.public, new.public)
    assert same(load_public(keys / "audit.pub"), new.public)
    for key in (old, new):
        report = verify(directory, trust=key.public, key=key)
        assert report.ok and report.sealing is not None and len(report.sealing.keys) == 2
        assert independent(directory, key) == []
    assert not verify(directory, trust=new_key().public).ok


async def test_only_the_public_half_of_an_old_key_is_kept(directory: Path, keys: Path) -> None:
    old = load(keys)
    await write(directory, old)
    rotate(directory, keys)
    (kept,) = names_in(keys) - {"audit.key", "audit.pub", CHECKPOINT_NAME}
    assert same(load_public(keys / kept), old.public)
    with pytest.raises(AuditError, match="another key"):
        AuditLog.open(directory, key=old)


async def test_many_hand_overs_are_one_line_of_keys(directory: Path, keys: Path) -> None:
    first = load(keys)
    await write(directory, first, 1)
    for _ in range(4):
        rotate(directory, keys)
        await write(directory, load(keys), 1)
    report = verify(directory, trust=first.public, key=load(keys))
    assert report.ok and report.sealing is not None and len(report.sealing.keys) == 5
    assert independent(directory, first) == []


@pytest.mark.parametrize("stage", ["made", "recorded", "signed"])
async def test_a_rotation_that_broke_off_leaves_the_key_that_is_needed(
    directory: Path, keys: Path, stage: str
) -> None:
    await write(directory, load(keys))
    key = prepare_successor(keys)
    assert key.successor is not None
    if stage != "made":
        writer = Writer.open(directory, key, SEGMENT_BYTES, {})
        writer.rotate_key(key.successor)
        writer.close()
    if stage == "recorded":
        change(directory, lambda some: some[:-1])
        (directory / CHECKPOINT_NAME).unlink()
        (keys / CHECKPOINT_NAME).unlink()
    await write(directory, load(keys))
    expected = key if stage == "made" else key.successor
    assert same(load(keys).public, expected.public)
    rotate(directory, keys)
    await write(directory, load(keys))
    assert verify(directory, trust=key.public, key=load(keys)).ok


async def test_a_hand_over_by_somebody_without_the_old_key_is_refused(
    directory: Path, tmp_path: Path
) -> None:
    await write(directory, KEY)
    other, thief = tmp_path / "other", new_key()
    await write(other, thief)
    writer = Writer.open(other, thief, SEGMENT_BYTES, {})
    writer.rotate_key(new_key())
    writer.close()
    stolen = next(r for r in records(other) if r["event"] == "key_rotated")
    line = [p.read_bytes().splitlines()[stolen["seq"] - 1] for p in segments(other)]
    change(directory, lambda some: rechained([*some, *line]))
    report = verify(directory, trust=KEY.public)
    assert report.tampering is not None and not report.ok
    assert independent(directory, KEY) != []


async def test_a_running_appliance_keeps_people_from_its_log(directory: Path, keys: Path) -> None:
    log = AuditLog.open(directory, key=load(keys))
    with pytest.raises(AuditError, match="another process writes"):
        rotate(directory, keys)
    await log.close()
    await write(directory, load(keys))


# -- retention --------------------------------------------------------------------------------


async def test_removed_segments_leave_a_log_that_both_verifiers_accept(
    directory: Path, keys: Path
) -> None:
    await write(directory, load(keys), 60, **SMALL)
    before = verify(directory, trust=load(keys).public)
    old = anchor.latest(directory)
    count = len(segments(directory))
    writer = Writer.open(directory, load(keys), SEGMENT_BYTES, {})
    gone = remove(writer, 401)
    assert len(gone) == count - 1
    assert len(segments(directory)) == 2  # a later day has begun another
    await write(directory, load(keys))
    report = verify(directory, trust=load(keys).public, key=load(keys), anchors=[read_note(old)])
    assert report.ok and report.first_seq == gone[-1] + 1 and report.last_seq > before.last_seq
    assert independent(directory, load(keys), old) == []
    told = [r for r in records(directory) if r["event"] == "segment_removed"]
    assert [r["last_seq"] for r in told] == gone


def remove(writer: Writer, days: int) -> list[int]:
    """Numbers of the last records of what was removed, `days` from now."""
    try:
        return [each.last_seq for each in remove_expired(writer, 400, later(days))]
    finally:
        writer.close()


async def test_an_archived_segment_put_back_is_proven_to_be_the_one_that_was_removed(
    directory: Path, keys: Path
) -> None:
    await write(directory, load(keys), 60, **SMALL)
    archived = {path: path.read_bytes() for path in segments(directory)[:-1]}
    remove(Writer.open(directory, load(keys), SEGMENT_BYTES, {}), 401)
    for path, data in archived.items():
        path.write_bytes(data)
    assert verify(directory, trust=load(keys).public).ok
    first = next(iter(archived))
    first.write_bytes(archived[first].replace(b'"rule":"r1"', b'"rule":"r2"', 1))
    assert not verify(directory, trust=load(keys).public).ok


async def test_a_removal_that_a_crash_broke_off_is_done_again(directory: Path, keys: Path) -> None:
    await write(directory, load(keys), 60, **SMALL)
    last = segments(directory)[-2]
    data = last.read_bytes()
    gone = remove(Writer.open(directory, load(keys), SEGMENT_BYTES, {}), 401)
    last.write_bytes(data)  # as if it had not been unlinked yet
    assert verify(directory, trust=load(keys).public).ok
    again = remove(Writer.open(directory, load(keys), SEGMENT_BYTES, {}), 401)
    assert again == [gone[-1]] and not last.exists()
    assert verify(directory, trust=load(keys).public).ok


async def test_nothing_is_removed_across_a_gap(directory: Path, keys: Path) -> None:
    await write(directory, load(keys), 60, **SMALL)
    segments(directory)[1].unlink()
    assert expired(directory, 400, later(500)) == []


async def test_a_beginning_that_somebody_removed_is_found(directory: Path, keys: Path) -> None:
    await write(directory, load(keys), 60, **SMALL)
    segments(directory)[0].unlink()
    report = verify(directory, trust=load(keys).public)
    assert report.tampering is not None and report.tampering.kind == "removed"
    assert independent(directory, load(keys)) != []


async def test_only_what_was_closed_long_enough_ago_expires(directory: Path, keys: Path) -> None:
    await write(directory, load(keys), 60, **SMALL)
    count = len(segments(directory))
    assert expired(directory, 400, later(399)) == []
    assert len(expired(directory, 400, later(401))) == count - 1  # never the one being written
    assert expired(directory, 0, later(10_000)) == []


async def test_a_segment_before_a_log_was_sealed_stays(directory: Path, keys: Path) -> None:
    await write(directory, None, 60, **SMALL)
    await write(directory, load(keys), 5)
    assert expired(directory, 400, later(500)) == []


async def test_a_legal_hold_stops_removal_and_says_so(directory: Path, keys: Path) -> None:
    await write(directory, load(keys), 60, **SMALL)
    (directory / LEGAL_HOLD).touch()
    count = len(segments(directory))
    assert expired(directory, 1, later(500)) == []
    with pytest.raises(AuditError, match="legal hold"):
        retain_now(directory, load(keys), 1)
    assert len(segments(directory)) == count


async def test_a_running_appliance_removes_what_expires_by_itself(
    directory: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(directory, load(keys), 60, **SMALL)
    true = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true() + 500 * DAY_NS)
    await write(directory, load(keys), 2)
    assert len(segments(directory)) == 2  # that of the last old day ends only now
    assert "segment_removed" in events(directory)
    assert verify(directory, trust=load(keys).public, key=load(keys)).ok


@pytest.mark.parametrize("damage", ["the end of a segment", "the start of one"])
async def test_damage_of_old_stops_removal_but_not_recording(
    directory: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    await write(directory, load(keys), 60, **SMALL)
    if damage == "the end of a segment":
        segments(directory)[0].write_bytes(b"junk\n")
    else:
        change(directory, lambda some: [rewritten(some[0], note=7), *some[1:]], segment=1)
    count = len(segments(directory))
    true = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true() + 500 * DAY_NS)
    log = AuditLog.open(directory, key=load(keys))
    await log.append("decision", n=1)
    assert log.healthy
    await log.close()
    assert len(segments(directory)) == count + 1


async def test_more_hand_overs_than_a_record_repeats_still_end_in_one_line_of_keys(
    directory: Path,
) -> None:
    key = new_key()
    writer = Writer.open(directory, key, 9000, {"start": {}})
    for _ in range(MAX_REPEATED + 4):
        key = new_key()
        writer.rotate_key(key)
        writer.append([("decision", {}, now())])
    writer.checkpoint(now())
    writer.close()
    assert len(segments(directory)) > 2
    await write(directory, key)
    assert verify(directory, trust=key.public, key=key).ok
    await write(directory, key)
    assert len(retained(directory, key)) > 2
    assert verify(directory, trust=key.public, key=key).ok
    assert independent(directory, key) == []


def retained(directory: Path, key: AuditKey) -> list[int]:
    return remove(Writer.open(directory, key, SEGMENT_BYTES, {}), 401)
