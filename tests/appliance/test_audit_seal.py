"""A sealed log: what its writer adds to it, when, and what it finds out before it goes on."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path

import pytest

from conductor.audit import anchor
from conductor.audit.checkpoint import read_checkpoint, read_note
from conductor.audit.keys import PRIVATE_NAME, AuditKey, ensure, load, load_public, same
from conductor.audit.log import AuditLog
from conductor.audit.merkle import Frontier, leaf_hash
from conductor.audit.record import canonical, mac_holds
from conductor.audit.segments import CHECKPOINT_NAME, segments
from conductor.audit.verify import verify
from conductor.errors import AuditError, ConfigError
from support.appliance import until
from support.sealedlog import (
    change,
    events,
    lines,
    new_key,
    rechained,
    records,
    rewritten,
    write,
)

KEY = new_key()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "audit"


async def test_a_log_names_itself_first_and_is_signed_at_start_and_at_the_end(
    directory: Path,
) -> None:
    await write(directory, KEY, 2)
    assert events(directory) == [
        "sealed", "start", "checkpoint", "decision", "decision", "stop", "checkpoint",
    ]  # fmt: skip
    report = verify(directory, trust=KEY.public, key=KEY)
    assert report.ok and report.trusted
    assert report.sealing is not None
    assert (report.sealing.checkpoints, report.sealing.signed_to, report.sealing.macs) == (2, 6, 7)


async def test_every_record_is_under_the_key_of_the_chain(directory: Path) -> None:
    await write(directory, KEY)
    origin = records(directory)[0]["origin"]
    assert all(mac_holds(record, KEY.chain_key(origin)) for record in records(directory))
    other = new_key().chain_key(origin)
    assert not any(mac_holds(record, other) for record in records(directory))


async def test_a_checkpoint_holds_the_tree_of_all_records_before_it(directory: Path) -> None:
    await write(directory, KEY)
    await write(directory, KEY)
    tree = Frontier()
    for line, record in zip(lines(directory), records(directory), strict=True):
        if record["event"] == "checkpoint":
            said = read_checkpoint(read_note(record["note"]))
            assert (said.size, said.root) == (record["seq"] - 1, tree.root)
            assert record["frontier"] == tree.hex()
        tree.append(leaf_hash(line))
    assert verify(directory).root == tree.root.hex()


async def test_the_latest_checkpoint_lies_beside_the_log_for_anchoring(directory: Path) -> None:
    await write(directory, KEY)
    last = [record for record in records(directory) if record["event"] == "checkpoint"][-1]
    assert anchor.latest(directory) == last["note"]
    note = anchor.read(directory / CHECKPOINT_NAME)
    await write(directory, KEY)
    assert verify(directory, anchors=[note]).anchors[0].state == "holds"


async def test_a_checkpoint_comes_by_itself_when_there_is_something_new_and_not_again(
    directory: Path,
) -> None:
    log = AuditLog.open(directory, key=KEY, checkpoint_s=0.05)
    await log.append("decision", n=1)
    await until(lambda: events(directory)[-1] == "checkpoint")
    count = events(directory).count("checkpoint")
    await asyncio.sleep(0.2)
    assert events(directory).count("checkpoint") == count
    await log.close()


async def test_checkpoints_come_under_constant_load_too(directory: Path) -> None:
    log = AuditLog.open(directory, key=KEY, checkpoint_s=0.02)
    for n in range(100):
        await log.append("decision", n=n)
        await asyncio.sleep(0.001)
    assert events(directory).count("checkpoint") >= 3
    await log.close()
    assert verify(directory, key=KEY).ok


async def test_every_later_segment_begins_with_a_checkpoint(directory: Path) -> None:
    await write(directory, KEY, 60, max_batch=4, segment_bytes=4000)
    await write(directory, KEY, 60, max_batch=4, segment_bytes=4000)
    assert len(segments(directory)) > 4
    for path in segments(directory)[1:]:
        assert b'"event":"checkpoint"' in path.read_bytes().splitlines()[0]
    assert verify(directory, trust=KEY.public, key=KEY).ok


async def test_a_later_day_begins_a_segment_and_a_clock_set_back_does_not(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, ahead = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: true() + ahead[0])
    day = 86_400 * 10**9
    log = AuditLog.open(directory, key=KEY)
    for days, expected in ((0, 1), (1, 2), (0, 2), (-3, 2), (2, 3)):
        ahead[0] = days * day
        await log.append("decision", n=days)
        assert len(segments(directory)) == expected, days
    await log.close()
    report = verify(directory, key=KEY)
    assert report.ok and report.clock_set_back == 2


async def test_a_log_begun_without_a_key_is_sealed_over_all_that_it_holds(directory: Path) -> None:
    await write(directory, None, 5)
    await write(directory, KEY, 2)
    assert events(directory)[7:10] == ["sealed", "start", "checkpoint"]
    report = verify(directory, trust=KEY.public, key=KEY)
    assert report.ok and report.sealing is not None and report.sealing.signed_to == 13


async def test_a_segment_created_before_a_crash_still_begins_with_a_checkpoint(
    directory: Path,
) -> None:
    await write(directory, KEY, 2)
    (directory / "audit-00000002.jsonl").touch()
    await write(directory, KEY, 2)
    assert b'"event":"checkpoint"' in segments(directory)[1].read_bytes().splitlines()[0]
    assert verify(directory, trust=KEY.public, key=KEY).ok


async def test_every_cut_of_a_new_sealed_log_is_healed(directory: Path) -> None:
    await write(directory, KEY, 2)
    path = segments(directory)[0]
    whole = path.read_bytes()
    for size in range(0, len(whole), 211):
        path.write_bytes(whole[:size])
        (directory / CHECKPOINT_NAME).unlink()  # or the cut would be found out
        await AuditLog.open(directory, key=KEY).close()
        report = verify(directory, key=KEY)
        assert report.ok and report.torn_bytes == 0, size


# -- what is found when it is opened ----------------------------------------------------------


async def test_a_sealed_log_is_opened_with_its_own_key_only(directory: Path) -> None:
    await write(directory, KEY)
    before = lines(directory)
    with pytest.raises(AuditError, match="no key was given"):
        AuditLog.open(directory)
    with pytest.raises(AuditError, match="another key"):
        AuditLog.open(directory, key=new_key())
    assert lines(directory) == before
    await write(directory, KEY)


def cut(some: list[bytes]) -> list[bytes]:
    return some[:-3]


def appended(some: list[bytes]) -> list[bytes]:
    forged = rewritten(some[-2], n=9, event="decision")
    return rechained([*some, forged])


def without_seal(some: list[bytes]) -> list[bytes]:
    bare = [line for line in some if b'"sealed"' not in line and b'"checkpoint"' not in line]
    return rechained(bare)


def unsealed(some: list[bytes]) -> list[bytes]:
    bare = [json.loads(line) for line in without_seal(some)]
    return rechained([canonical({k: v for k, v in r.items() if k != "mac"}) for r in bare])


@pytest.mark.parametrize("edit", [cut, appended, without_seal])
async def test_a_tail_changed_while_the_appliance_was_off_stops_the_start(
    directory: Path, edit: object
) -> None:
    await write(directory, KEY)
    change(directory, edit)  # type: ignore[arg-type]
    with pytest.raises(AuditError, match="somebody changed it"):
        AuditLog.open(directory, key=KEY)


async def test_a_record_changed_after_the_last_checkpoint_stops_the_start(directory: Path) -> None:
    log = AuditLog.open(directory, key=KEY)
    await log.append("decision", n=1)
    await log.append("decision", n=2)
    whole = lines(directory)
    await log.close()
    tail = [rewritten(whole[3], n=7), *whole[4:]]
    path = segments(directory)[0]
    path.write_bytes(b"\n".join(rechained([*whole[:3], *tail])) + b"\n")
    (directory / CHECKPOINT_NAME).unlink()
    with pytest.raises(AuditError, match="not written with its key"):
        AuditLog.open(directory, key=KEY)


async def test_words_that_look_like_a_checkpoint_do_not_confuse_the_start(directory: Path) -> None:
    log = AuditLog.open(directory, key=KEY)
    await log.append("decision", nested={"event": "checkpoint"}, text='"event":"checkpoint"')
    await log.close()
    change(directory, lambda some: some[:-2])
    (directory / CHECKPOINT_NAME).unlink()
    await write(directory, KEY)
    assert verify(directory, key=KEY).ok


@pytest.mark.parametrize("what", ["everything", "seal and MACs", "the end", "the log"])
async def test_the_note_beside_the_key_tells_what_was_done_to_the_log_folder(
    directory: Path, tmp_path: Path, what: str
) -> None:
    keys = tmp_path / "keys"
    ensure(keys, directory)
    await write(directory, load(keys))
    (directory / CHECKPOINT_NAME).unlink()
    if what == "everything":
        change(directory, lambda some: [])
    elif what == "seal and MACs":
        change(directory, unsealed)
    elif what == "the end":
        change(directory, cut)
    else:
        shutil.rmtree(directory)
    with pytest.raises(AuditError, match=r"is gone, or its seal is|somebody changed it"):
        AuditLog.open(directory, key=load(keys))


# -- key files --------------------------------------------------------------------------------


async def test_the_first_start_makes_the_key_and_the_next_one_finds_it(
    directory: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    assert ensure(keys, directory) and not ensure(keys, directory)
    assert (keys / PRIVATE_NAME).stat().st_mode & 0o777 == 0o600
    assert same(load(keys).public, load_public(keys / "audit.pub"))
    await write(directory, load(keys))
    await write(directory, load(keys))
    assert verify(directory, trust=load_public(keys / "audit.pub"), key=load(keys)).ok


async def test_a_lost_key_of_a_sealed_log_is_not_made_anew(directory: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    ensure(keys, directory)
    await write(directory, load(keys))
    (keys / PRIVATE_NAME).unlink()
    with pytest.raises(AuditError, match="is missing from keys"):
        ensure(keys, directory)
    with pytest.raises(AuditError, match="put it back"):
        load(keys)


def test_a_key_that_others_may_read_is_refused_and_none_is_ever_shown(tmp_path: Path) -> None:
    ensure(tmp_path / "keys", tmp_path / "audit")
    key: AuditKey = load(tmp_path / "keys")
    assert "private" not in repr(key)
    (tmp_path / "keys" / PRIVATE_NAME).chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by others"):
        load(tmp_path / "keys")
