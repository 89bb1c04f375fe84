"""The audit log: durable in order, healed after a crash or a full disk, found out when changed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from conductor.audit.log import AuditLog
from conductor.audit.record import GENESIS, canonical, hash_line
from conductor.audit.segments import read_since, read_tail, segments
from conductor.audit.verify import verify
from conductor.cli.audit import audit as audit_command
from conductor.core import Failure
from conductor.errors import AuditError


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-audit-"))
    yield path
    shutil.rmtree(path)


def records(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in segments(directory) for line in path.read_bytes().splitlines()
    ]


def resources_held() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def only_segment(directory: Path) -> Path:
    (path,) = segments(directory)
    return path


async def write_log(directory: Path, count: int, **options: Any) -> None:
    log = AuditLog.open(directory, **options)
    await asyncio.gather(*(log.post("decision", n=n, rule="r1") for n in range(count)))
    await log.close()


# -- writing ----------------------------------------------------------------------------------


async def test_a_run_begins_with_start_and_ends_with_stop(directory: Path) -> None:
    await write_log(directory, 3)
    assert [r["event"] for r in records(directory)] == ["start", *["decision"] * 3, "stop"]
    assert [r["seq"] for r in records(directory)] == [1, 2, 3, 4, 5]


async def test_each_record_repeats_the_hash_of_the_line_before_it(directory: Path) -> None:
    await write_log(directory, 3)
    lines = only_segment(directory).read_bytes().splitlines()
    assert json.loads(lines[0])["prev"] == GENESIS
    for before, after in itertools.pairwise(lines):
        assert json.loads(after)["prev"] == hash_line(before)


async def test_lines_are_canonical_and_carry_both_clocks(directory: Path) -> None:
    await write_log(directory, 1)
    for line in only_segment(directory).read_bytes().splitlines():
        record = json.loads(line)
        assert canonical(record) == line
        assert list(record) == sorted(record)
        assert record["ts"].endswith("Z") and len(record["ts"]) == 24
        assert isinstance(record["mono_ns"], int) and record["boot_id"]


async def test_a_post_resolves_only_when_its_record_is_on_disk(directory: Path) -> None:
    log = AuditLog.open(directory)
    await log.append("decision", request_id="r-77")
    assert b'"request_id":"r-77"' in only_segment(directory).read_bytes()
    assert log.head.hash == verify(directory).head
    await log.close()


async def test_ten_thousand_posts_at_once_keep_their_order_and_share_their_syncs(
    directory: Path,
) -> None:
    log = AuditLog.open(directory)
    before = log.commits
    await asyncio.gather(*(log.post("decision", n=n) for n in range(10_000)))
    assert log.commits - before <= 10_000 / 64 + 64
    await log.close()
    written = [r["n"] for r in records(directory) if r["event"] == "decision"]
    assert written == list(range(10_000))
    assert verify(directory).ok


async def test_the_next_run_continues_the_chain(directory: Path) -> None:
    await write_log(directory, 2)
    await write_log(directory, 2)
    assert [r["event"] for r in records(directory)].count("start") == 2
    report = verify(directory)
    assert report.ok and report.records == 8


async def test_a_full_segment_is_followed_by_another_in_the_same_chain(directory: Path) -> None:
    await write_log(directory, 50, max_batch=4, segment_bytes=2000)
    await write_log(directory, 50, max_batch=4, segment_bytes=2000)
    assert len(segments(directory)) > 5
    report = verify(directory)
    assert report.ok and report.records == 104


async def test_a_segment_that_was_only_created_before_the_crash_is_used(directory: Path) -> None:
    await write_log(directory, 2)
    (directory / "audit-00000002.jsonl").touch()
    await write_log(directory, 2)
    assert verify(directory).ok
    assert verify(directory).records == 8


async def test_other_files_in_the_directory_are_left_alone(directory: Path) -> None:
    for name in ("audit-old.jsonl", "audit-00000001.jsonl.bak", "notes.txt"):
        (directory / name).write_text("mine\n")
    await write_log(directory, 50, max_batch=4, segment_bytes=2000)
    assert verify(directory).ok
    assert (directory / "audit-old.jsonl").read_text() == "mine\n"


async def test_a_second_writer_is_refused_until_the_first_has_closed(directory: Path) -> None:
    log = AuditLog.open(directory)
    with pytest.raises(AuditError, match="another process writes"):
        AuditLog.open(directory)
    await log.close()
    await AuditLog.open(directory).close()


async def test_closing_twice_is_harmless_and_a_closed_log_refuses(directory: Path) -> None:
    log = AuditLog.open(directory)
    await log.close()
    await log.close()
    assert not log.healthy
    with pytest.raises(AuditError, match="closed"):
        await log.append("decision")


async def test_what_was_posted_before_closing_is_written(directory: Path) -> None:
    log = AuditLog.open(directory)
    posts = [log.post("decision", n=n) for n in range(500)]
    await log.close()
    assert all(post.done() and post.exception() is None for post in posts)
    assert len(records(directory)) == 502


async def test_cancelling_a_waiter_withdraws_nothing(directory: Path) -> None:
    log = AuditLog.open(directory)
    log.post("decision", n=1).cancel()
    await log.append("decision", n=2)
    await log.close()
    assert [r["n"] for r in records(directory) if "n" in r] == [1, 2]


async def test_open_leaves_neither_descriptor_nor_thread_behind(directory: Path) -> None:
    await write_log(directory, 1)
    before = resources_held()
    for _ in range(3):
        log = AuditLog.open(directory)
        with pytest.raises(AuditError):
            AuditLog.open(directory)
        await log.close()
    only_segment(directory).write_bytes(b"no record\n")
    with pytest.raises(AuditError):
        AuditLog.open(directory)
    assert resources_held() == before


def test_a_directory_that_cannot_be_made_is_an_audit_error_without_its_path(
    directory: Path,
) -> None:
    (directory / "file").touch()
    with pytest.raises(AuditError) as caught:
        AuditLog.open(directory / "file" / "audit")
    assert "file/" not in str(caught.value)


# -- what may be recorded ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"cost": 0.5},
        {"body": b"bytes"},
        {"text": "x" * 4097},
        {"text": "é" * 2100},
        {"nested": [{"deep": "x" * 5000}]},
        {"x" * 5000: 1},
        {"many": ["x" * 4000] * 5},
        {"n": 1 << 63},
        {"text": "\ud800"},
        {"when": object()},
        {"deep": [[[[[[[1]]]]]]]},
        {"seq": 7},
        {"prev": "0"},
        {"map": {1: 2}},
    ],
    ids=lambda fields: str(next(iter(fields)))[:8],
)
async def test_fields_that_could_hold_a_body_or_lie_are_refused(
    directory: Path, fields: dict[str, Any]
) -> None:
    log = AuditLog.open(directory)
    with pytest.raises(AuditError):
        log.post("decision", **fields)
    await log.append("decision", fine=True)
    await log.close()
    assert verify(directory).ok


async def test_plain_values_are_recorded_as_they_are_and_copied_at_once(directory: Path) -> None:
    log = AuditLog.open(directory)
    rules = ["r1"]
    post = log.post(
        "decision",
        rules=rules,
        pair=("a", 1),
        failure=Failure.CUT,
        none=None,
        yes=True,
        text="line\nbreak \u2028 \x00 é",
    )
    rules.append("added later")
    await post
    await log.close()
    record = records(directory)[1]
    assert record["rules"] == ["r1"] and record["pair"] == ["a", 1]
    assert record["failure"] == "cut" and record["none"] is None and record["yes"] is True
    assert record["text"] == "line\nbreak \u2028 \x00 é"
    assert verify(directory).ok


# -- the disk fails ---------------------------------------------------------------------------


class FullDisk:
    """Files of this process may not grow beyond a size, as on a full disk."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


async def test_a_full_disk_fails_every_waiting_post_and_the_log_recovers_by_itself(
    directory: Path,
) -> None:
    log = AuditLog.open(directory)
    await asyncio.gather(*(log.post("decision", n=n) for n in range(300)))
    whole = only_segment(directory).stat().st_size
    with FullDisk(whole + 100):  # room for a torn line
        posts = [log.post("decision", n=n) for n in range(1000, 1200)]
        results = await asyncio.gather(*posts, return_exceptions=True)
        assert all(isinstance(result, AuditError) for result in results)
        assert not log.healthy
        with pytest.raises(AuditError, match="EFBIG"):
            await log.append("decision", n=2000)
    await log.append("decision", n=3000)
    assert log.healthy
    await log.close()
    report = verify(directory)
    assert report.ok and report.torn_bytes == 0
    written = records(directory)
    assert not [r for r in written if 1000 <= r.get("n", 0) <= 2000]
    (note,) = [r for r in written if r["event"] == "log_recovered"]
    assert (note["lost"], note["reason"]) == (201, "EFBIG")


async def test_a_log_whose_segment_is_deleted_under_it_refuses_to_go_on(directory: Path) -> None:
    log = AuditLog.open(directory)
    await log.append("decision", n=1)
    only_segment(directory).unlink()
    for n in (2, 3):
        with pytest.raises(AuditError):
            await log.append("decision", n=n)
    assert not log.healthy
    with pytest.raises(AuditError):
        await log.close()


async def test_a_failed_post_that_nobody_awaits_makes_no_noise(directory: Path) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    log = AuditLog.open(directory)
    await log.close()
    log.post("decision")
    await asyncio.sleep(0)
    assert complaints == []


# -- crashes ----------------------------------------------------------------------------------

WRITER = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from conductor.audit.log import AuditLog

    async def main():
        log = AuditLog.open(Path(sys.argv[1]), segment_bytes=100_000)
        n = 0
        while True:
            await asyncio.gather(*(log.post("decision", n=n + i) for i in range(40)))
            n += 40
            print(n, flush=True)

    asyncio.run(main())
    """)


def test_kill_9_at_any_moment_loses_nothing_that_was_acknowledged(directory: Path) -> None:
    roots = os.pathsep.join(path for path in sys.path if path)
    for pause_s in (0.0, 0.013, 0.031, 0.057):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(directory)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": roots},
        )
        assert child.stdout is not None
        acknowledged = int(child.stdout.readline())
        time.sleep(pause_s)
        child.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, child.stdout.read().splitlines())])
        child.wait()
        child.stdout.close()
        report = verify(directory)
        assert report.ok
        last_run = [r for r in records_until_torn(directory) if "n" in r][-1]
        assert last_run["n"] >= acknowledged - 1
    asyncio.run(AuditLog.open(directory).close())
    assert verify(directory).ok


def records_until_torn(directory: Path) -> list[dict[str, Any]]:
    path = segments(directory)[-1]
    whole = path.read_bytes()[: read_tail(path).good_bytes]
    lines = b"".join(earlier.read_bytes() for earlier in segments(directory)[:-1]) + whole
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.parametrize("torn", [b'{"boot_id":"x","ev', b"\0" * 700, b"junk\0\n\0\0"])
async def test_a_torn_end_is_cut_back_and_told(directory: Path, torn: bytes) -> None:
    await write_log(directory, 3)
    with only_segment(directory).open("ab") as file:
        file.write(torn)
    report = verify(directory)
    assert report.ok and report.torn_bytes == len(torn) and report.records == 5
    await write_log(directory, 1)
    report = verify(directory)
    assert report.ok and report.torn_bytes == 0
    note = next(r for r in records(directory) if r["event"] == "log_recovered")
    assert note["cut_bytes"] == len(torn) and note["cut_sha256"] == hash_line(torn)
    assert [r["event"] for r in records(directory)][5:7] == ["start", "log_recovered"]


async def test_every_cut_of_the_file_is_healed(directory: Path) -> None:
    await write_log(directory, 2)
    whole = only_segment(directory).read_bytes()
    for size in range(0, len(whole), 37):
        only_segment(directory).write_bytes(whole[:size])
        assert verify(directory).ok
        await AuditLog.open(directory).close()
        report = verify(directory)
        assert report.ok and report.torn_bytes == 0, size


async def test_a_changed_last_line_is_not_taken_for_a_torn_one(directory: Path) -> None:
    await write_log(directory, 2)
    with only_segment(directory).open("ab") as file:
        file.write(b"not a record\n")
    with pytest.raises(AuditError, match="no record"):
        AuditLog.open(directory)


# -- tampering --------------------------------------------------------------------------------


def rewrite(line: bytes, **changes: Any) -> bytes:
    return canonical({**json.loads(line), **changes})


def rechain(lines: list[bytes]) -> list[bytes]:
    """What an attacker who can write the file and has read the source would do."""
    out: list[bytes] = []
    for number, line in enumerate(lines, 1):
        prev = hash_line(out[-1]) if out else GENESIS
        out.append(rewrite(line, prev=prev, seq=number))
    return out


def flip(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[4].replace(b'"n":3', b'"n":4'), *lines[5:]]


TAMPERINGS = {
    "a changed value": (flip, "hash", 6),
    "a deleted record": (lambda lines: lines[:4] + lines[5:], "sequence", 5),
    "a deleted beginning": (lambda lines: lines[1:], "sequence", 1),
    "two swapped records": (
        lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
        "sequence",
        5,
    ),
    "an inserted record": (lambda lines: [*lines[:4], lines[3], *lines[4:]], "sequence", 5),
    "a renumbered deletion": (
        lambda lines: lines[:4] + [rewrite(x, seq=n) for n, x in enumerate(lines[5:], 5)],
        "hash",
        5,
    ),
    "a line of junk": (lambda lines: [*lines[:4], b"[1]", *lines[4:]], "json", 5),
    "a name given twice": (
        lambda lines: [*lines[:4], lines[4].replace(b'"n":3', b'"n":9,"n":3'), *lines[5:]],
        "json",
        5,
    ),
    "a line longer than any record": (lambda lines: [*lines[:4], b"x" * 99999], "json", 5),
    "NUL bytes in the middle": (
        lambda lines: [*lines[:4], lines[4].replace(b"r1", b"\0\0"), *lines[5:]],
        "json",
        5,
    ),
    "time that runs backwards": (
        lambda lines: rechain([*lines[:4], rewrite(lines[4], mono_ns=1), *lines[5:]]),
        "time",
        5,
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
async def test_tampering_is_found_at_its_place(directory: Path, name: str) -> None:
    change, kind, seq = TAMPERINGS[name]
    await write_log(directory, 8)
    path = only_segment(directory)
    path.write_bytes(b"\n".join(change(path.read_bytes().splitlines())) + b"\n")
    report = verify(directory)
    assert report.tampering is not None and not report.ok
    assert (report.tampering.kind, report.tampering.seq) == (kind, seq)
    assert report.records == seq - 1


async def test_every_flipped_byte_but_the_last_records_is_found(directory: Path) -> None:
    await write_log(directory, 2)
    path = only_segment(directory)
    whole = path.read_bytes()
    head = verify(directory).head
    for place in range(0, len(whole) - 1, 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not verify(directory, head).ok, place


async def test_a_missing_segment_is_found(directory: Path) -> None:
    await write_log(directory, 50, max_batch=4, segment_bytes=2000)
    segments(directory)[2].unlink()
    report = verify(directory)
    assert report.tampering is not None and report.tampering.kind == "sequence"


async def test_only_a_noted_head_finds_a_cut_tail_and_a_full_rewrite(directory: Path) -> None:
    await write_log(directory, 8)
    path = only_segment(directory)
    lines = path.read_bytes().splitlines()
    head = verify(directory).head

    path.write_bytes(b"\n".join(lines[:-3]) + b"\n")
    assert verify(directory).ok
    assert verify(directory, head).head_found is False

    forged = rechain([rewrite(line, rule="forged") for line in lines])
    path.write_bytes(b"\n".join(forged) + b"\n")
    assert verify(directory).ok
    assert not verify(directory, head).ok


async def test_a_head_noted_in_the_middle_is_found_again_later(directory: Path) -> None:
    await write_log(directory, 3)
    head = verify(directory).head
    await write_log(directory, 3)
    assert verify(directory, head.upper()).head_found is True


async def test_a_wall_clock_that_was_set_back_is_told_but_is_no_tampering(
    directory: Path,
) -> None:
    await write_log(directory, 4)
    path = only_segment(directory)
    lines = path.read_bytes().splitlines()
    lines[3] = rewrite(lines[3], ts="2020-01-01T00:00:00.000Z")
    path.write_bytes(b"\n".join(rechain(lines)) + b"\n")
    report = verify(directory)
    assert report.ok and report.clock_set_back == 1


async def test_a_log_in_use_can_be_verified(directory: Path) -> None:
    log = AuditLog.open(directory)
    for _ in range(20):
        posts = [log.post("decision", n=n) for n in range(50)]
        assert (await asyncio.to_thread(verify, directory)).ok
        await asyncio.gather(*posts)
    await log.close()


# -- reading back -----------------------------------------------------------------------------


async def test_records_since_a_time_come_from_the_segments_that_can_hold_them(
    directory: Path,
) -> None:
    await write_log(directory, 50, max_batch=4, segment_bytes=2000)
    everything = records(directory)
    moment = everything[30]["ts"]
    expected = [r["seq"] for r in everything if r["ts"] >= moment]
    assert [r["seq"] for r in read_since(directory, moment)] == expected
    assert list(read_since(directory, "2999-01-01")) == []
    assert len(list(read_since(directory, "2000-01-01"))) == 52


async def test_reading_a_damaged_log_back_is_an_error_not_a_gap(directory: Path) -> None:
    await write_log(directory, 3)
    with only_segment(directory).open("ab") as file:
        file.write(b"junk\n")
    with pytest.raises(AuditError, match="damaged"):
        list(read_since(directory, "2000-01-01"))


# -- the command ------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(audit_command, ["verify", *arguments])
    return result.exit_code, result.output


async def test_the_command_says_what_it_found_by_exit_code_text_and_json(directory: Path) -> None:
    await write_log(directory, 3)
    head = verify(directory).head
    code, text = run(str(directory), "--head", head)
    assert code == 0 and head in text and "the chain holds" in text
    code, text = run(str(directory), "--json")
    assert code == 0 and json.loads(text)["records"] == 5

    path = only_segment(directory)
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":2'))
    code, text = run(str(directory))
    assert code == 1 and "at record 4" in text and "cannot be trusted" in text
    code, text = run(str(directory), "--json")
    assert code == 1 and json.loads(text)["tampering"]["kind"] == "hash"


async def test_the_command_counts_what_was_recorded(directory: Path) -> None:
    log = AuditLog.open(directory)
    for event in ("decision", "round", "round", "egress", "outcome", "of-another-version"):
        await log.append(event)
    await log.close()
    told = {"decision": 1, "round": 2, "egress": 1, "outcome": 1, "start": 1, "stop": 1, "other": 1}
    counted = verify(directory).events
    assert {event: count for event, count in counted.items() if count} == told
    code, text = run(str(directory))
    assert code == 0 and "1 decision, 2 round, 1 egress, 1 outcome" in text
    assert "log_recovered" not in text and "of-another-version" not in text


def test_the_command_exits_2_when_there_is_nothing_to_check(directory: Path) -> None:
    code, text = run(str(directory))
    assert code == 2 and "no audit log is here" in text
    assert run(str(directory / "missing"))[0] == 2
    assert run(str(directory), "--json")[0] == 2
    assert run(str(directory), "--head", "abc")[0] == 2
