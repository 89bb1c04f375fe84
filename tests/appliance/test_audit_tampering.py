"""A sealed log that was tampered with: both verifiers say so, and where."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from conductor.audit import anchor, standalone
from conductor.audit.checkpoint import read_note
from conductor.audit.record import canonical
from conductor.audit.segments import CHECKPOINT_NAME, segments
from conductor.audit.verify import verify
from conductor.errors import AuditError
from conductor.process.keyfiles import public_pem
from support.sealedlog import Lines, change, lines, new_key, rechained, rewritten, write

KEY = new_key()
EVENTS = [
    "sealed", "start", "checkpoint", "decision", "decision", "decision", "stop", "checkpoint",
    "start", "checkpoint", "decision", "decision", "decision", "stop", "checkpoint",
]  # fmt: skip


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """Two runs of the appliance."""
    await write(tmp_path / "audit", KEY)
    await write(tmp_path / "audit", KEY)
    return tmp_path / "audit"


def independent(
    directory: Path, trust: Ed25519PublicKey | None, anchors: list[str] | None = None
) -> bool:
    """What the standalone verifier thinks."""
    raw = None if trust is None else trust.public_bytes_raw()
    return not standalone.verify(directory, raw, anchors or [])[1]


def replaced(index: int, new: Callable[[bytes], bytes]) -> Callable[[Lines], Lines]:
    """One line changed, and everything after it made to fit again."""
    return lambda some: rechained([*some[:index], new(some[index]), *some[index + 1 :]])


def bare(some: Lines) -> Lines:
    """Every trace of the seal removed, and the rest made to fit again."""
    kept = [r for r in map(json.loads, some) if r["event"] not in ("sealed", "checkpoint")]
    return rechained([canonical({k: v for k, v in r.items() if k != "mac"}) for r in kept])


REWRITES: dict[str, tuple[Callable[[Lines], Lines], str, int]] = {
    "a changed value": (replaced(4, lambda line: rewritten(line, n=9)), "checkpoint", 8),
    "a deleted record": (lambda some: rechained(some[:4] + some[5:]), "checkpoint", 7),
    "two swapped records": (
        lambda some: rechained([*some[:4], some[5], some[4], *some[6:]]),
        "time",
        6,
    ),
    "an inserted record": (
        lambda some: rechained([*some[:4], some[4], *some[4:]]),
        "checkpoint",
        9,
    ),
    "a deleted checkpoint": (lambda some: rechained(some[:7] + some[8:]), "checkpoint", 9),
    "an old checkpoint in the place of a new one": (
        lambda some: rechained([*some[:7], rewritten(some[7], note=json.loads(some[2])["note"])]),
        "checkpoint",
        8,
    ),
    "a record without MAC": (
        replaced(4, lambda line: rewritten(line, mac="")),
        "mac",
        5,
    ),
    "a second seal": (replaced(4, lambda line: rewritten(line, event="sealed")), "key", 5),
    "a hand-over that nobody signed": (
        replaced(4, lambda line: rewritten(line, event="key_rotated", note="x\n\n— y z\n")),
        "checkpoint",
        5,
    ),
    "a checkpoint that says something else of its key": (
        replaced(7, lambda line: rewritten(line, vkey="x")),
        "checkpoint",
        8,
    ),
}


@pytest.mark.parametrize("name", REWRITES)
async def test_a_rewrite_that_fits_in_every_hash_is_found_at_the_next_checkpoint(
    directory: Path, name: str
) -> None:
    edit, kind, seq = REWRITES[name]
    change(directory, edit)
    report = verify(directory)
    assert report.tampering is not None and not report.ok
    assert (report.tampering.kind, report.tampering.seq) == (kind, seq)
    assert not independent(directory, None)


async def test_both_verifiers_accept_what_nobody_touched(directory: Path) -> None:
    assert [json.loads(line)["event"] for line in lines(directory)] == EVENTS
    report = verify(directory, trust=KEY.public, key=KEY)
    assert report.ok and report.trusted and report.last_seq == len(EVENTS)
    assert independent(directory, KEY.public, [anchor.latest(directory)])


async def test_every_flipped_byte_is_found_by_both(directory: Path) -> None:
    path = segments(directory)[0]
    whole = path.read_bytes()
    last_line = whole.rstrip(b"\n").rfind(b"\n") + 1
    for place in random.Random(3).sample(range(last_line), 150):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not verify(directory, trust=KEY.public).ok, place
        assert not independent(directory, KEY.public), place


async def test_a_log_written_anew_by_somebody_without_the_key_is_not_trusted(
    directory: Path, tmp_path: Path
) -> None:
    await write(tmp_path / "other", new_key())
    for forged in (lines(tmp_path / "other"), bare(lines(directory))):
        change(directory, lambda _, forged=forged: forged)  # type: ignore[misc]
        report = verify(directory, trust=KEY.public)
        assert report.tampering is None and report.trusted is False and not report.ok
        assert not independent(directory, KEY.public)


async def test_what_no_checkpoint_covers_yet_is_proven_by_the_private_key_alone(
    directory: Path,
) -> None:
    change(directory, lambda some: rechained([*some[:12], rewritten(some[12], n=9)]))
    report = verify(directory, trust=KEY.public)
    assert report.ok and report.sealing is not None
    assert (report.sealing.signed_to, report.last_seq) == (9, 13)
    with_key = verify(directory, trust=KEY.public, key=KEY)
    assert with_key.tampering is not None
    assert (with_key.tampering.kind, with_key.tampering.seq) == ("mac", 13)


# -- anchors ----------------------------------------------------------------------------------


async def test_a_log_that_was_cut_is_found_by_an_anchor_only(directory: Path) -> None:
    kept = anchor.read(directory / CHECKPOINT_NAME)
    text = anchor.latest(directory)
    assert verify(directory, trust=KEY.public, anchors=[kept]).ok
    for length in (13, 10, 9, 8, 5, 3):  # some of these end in a checkpoint
        change(directory, lambda some, length=length: some[:length])  # type: ignore[misc]
        assert verify(directory, trust=KEY.public).ok
        report = verify(directory, trust=KEY.public, anchors=[kept])
        assert report.anchors[0].state == "cut" and not report.ok
        assert independent(directory, KEY.public)
        assert not independent(directory, KEY.public, [text])


async def test_a_rewrite_by_whoever_has_the_key_is_found_by_an_anchor(
    directory: Path, tmp_path: Path
) -> None:
    kept = anchor.read(directory / CHECKPOINT_NAME)
    forged = tmp_path / "forged"
    for _ in range(3):
        await write(forged, KEY)
    assert verify(forged, trust=KEY.public, key=KEY).ok
    report = verify(forged, trust=KEY.public, anchors=[kept])
    assert report.anchors[0].state == "differs" and not report.ok
    assert not independent(forged, KEY.public, [anchor.latest(directory)])


async def test_an_old_state_put_back_with_its_checkpoint_is_found_by_an_anchor(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "audit"
    await write(directory, KEY)
    old = {path: path.read_bytes() for path in directory.iterdir()}
    await write(directory, KEY)
    kept = anchor.read(directory / CHECKPOINT_NAME)
    for path, data in old.items():
        path.write_bytes(data)
    assert verify(directory, trust=KEY.public, key=KEY).ok
    assert verify(directory, trust=KEY.public, anchors=[kept]).anchors[0].state == "cut"


async def test_anchors_at_every_checkpoint_hold_and_one_that_was_changed_does_not(
    directory: Path,
) -> None:
    records = [json.loads(line) for line in lines(directory)]
    notes = [record["note"] for record in records if record["event"] == "checkpoint"]
    report = verify(directory, anchors=[read_note(note) for note in notes])
    assert [each.state for each in report.anchors] == ["holds"] * 4
    assert independent(directory, KEY.public, notes)
    unsigned = notes[0].replace(notes[0].split(" ")[-1], notes[1].split(" ")[-1])
    assert verify(directory, anchors=[read_note(unsigned)]).anchors[0].state == "unsigned"
    assert not independent(directory, KEY.public, [unsigned])


async def test_reading_from_a_checkpoint_on_skips_what_was_verified_before(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    await write(directory, KEY, 40, max_batch=4, segment_bytes=4000)
    since = anchor.read(directory / CHECKPOINT_NAME)
    await write(directory, KEY, 40, max_batch=4, segment_bytes=4000)
    whole = verify(directory, trust=KEY.public)
    report = verify(directory, trust=KEY.public, since=since)
    assert report.ok and report.head == whole.head and report.root == whole.root
    assert report.records < whole.records and report.last_seq == whole.last_seq
    change(directory, lambda some: [rewritten(some[0], rule="x"), *some[1:]], segment=-1)
    assert not verify(directory, trust=KEY.public, since=since).ok


async def test_a_log_that_does_not_hold_the_checkpoint_to_begin_from_is_told(
    directory: Path, tmp_path: Path
) -> None:
    await write(tmp_path / "other", KEY, 1)
    foreign = anchor.read(tmp_path / "other" / CHECKPOINT_NAME)
    report = verify(directory, since=foreign)
    assert not report.ok
    since = anchor.read(directory / CHECKPOINT_NAME)
    change(directory, lambda some: some[:9])
    assert not verify(directory, since=since).ok


def test_an_anchor_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no note")
    for path in (tmp_path / "x", tmp_path / "missing"):
        with pytest.raises(AuditError, match="anchor"):
            anchor.read(path)
    with pytest.raises(AuditError, match="no checkpoint is here"):
        anchor.latest(tmp_path)


# -- the file that is shipped alone -----------------------------------------------------------


def alone(copy: Path, *arguments: object) -> tuple[int, str]:
    """Run the copied file with nothing of the appliance importable."""
    command = [sys.executable, "-I", str(copy), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=copy.parent)
    return done.returncode, done.stdout + done.stderr


async def test_the_standalone_file_runs_alone_and_says_what_it_found(
    directory: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "verifier.py"
    shutil.copy(standalone.__file__, copy)
    (tmp_path / "audit.pub").write_bytes(public_pem(KEY.public))
    (tmp_path / "kept").write_text(anchor.latest(directory))
    given = ("--signed-by", tmp_path / "audit.pub", "--anchor", tmp_path / "kept")
    code, said = alone(copy, directory, *given)
    assert code == 0 and "everything holds" in said and "1 to 15, signed up to 14" in said
    change(directory, lambda some: some[:10])
    code, said = alone(copy, directory, *given)
    assert code == 1 and "the log was cut" in said
    code, said = alone(copy, tmp_path / "nothing")
    assert code == 2 and "no audit log is here" in said
