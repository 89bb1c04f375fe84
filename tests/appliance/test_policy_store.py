"""Policies on disk: the old one or the new one, never neither, never an older one in silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conductor.activation.kept import CopyDamaged
from conductor.activation.store import Store
from conductor.errors import StartError

AT = "2026-08-01T12:00:00Z"
ROOT = Path(__file__).parents[2] / "appliance"
APPLIER = """
import sys
from pathlib import Path
from conductor.activation.store import Store
store = Store(Path(sys.argv[1]))
with store.writing() as writer:
    revision = store.held().highest
    print("ready", flush=True)
    while True:
        revision += 1
        writer.put(b"revision: %d\\n" % revision + b"#" * 20_000, revision, "t", "apply")
"""


def put(store: Store, revision: int, policy: bytes = b"x") -> None:
    with store.writing() as writer:
        writer.put(policy, revision, AT, "apply", ("anna", "bert"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_nothing_was_ever_put_in_force(store: Store) -> None:
    assert (store.held().condition, store.active(), store.history()) == ("empty", None, [])


def test_the_highest_revision_is_the_active_one_and_the_others_are_history(store: Store) -> None:
    put(store, 7, b"seven\xff")
    put(store, 12, b"twelve")
    assert store.active() == b"twelve"
    assert [copy.revision for copy in store.history()] == [12, 7]
    kept = store.copy(7)
    assert (kept.policy, kept.at, kept.how, kept.approved) == (
        b"seven\xff",
        AT,
        "apply",
        ("anna", "bert"),
    )


@pytest.mark.parametrize("revision", [1, 11, 12])
def test_a_revision_that_does_not_grow_is_refused(store: Store, revision: int) -> None:
    put(store, 12)
    with pytest.raises(StartError, match="cannot follow 12"):
        put(store, revision)
    assert store.held().highest == 12


def test_only_one_process_writes(store: Store) -> None:
    with store.writing(), pytest.raises(StartError, match="another process"):
        put(store, 1)
    put(store, 1)


@pytest.mark.parametrize("change", [b"", b"{}", b"[1]", b"null", b"\0" * 100])
def test_a_damaged_newest_copy_brings_no_older_policy_back(store: Store, change: bytes) -> None:
    put(store, 1)
    put(store, 2)
    store.path(2).write_bytes(change)
    assert (store.held().condition, store.active()) == ("damaged", None)
    put(store, 3, b"anew")
    assert store.active() == b"anew"


def test_every_flipped_byte_of_a_copy_is_noticed(store: Store) -> None:
    put(store, 1, b"revision: 1\n")
    good = store.path(1).read_bytes()
    for place in range(len(good)):
        store.path(1).write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(CopyDamaged):
            store.copy(1)


def test_a_newest_copy_that_is_gone_brings_no_older_policy_back(store: Store) -> None:
    put(store, 1)
    put(store, 2)
    store.path(2).unlink()
    assert (store.held().condition, store.active()) == ("rolled-back", None)
    with pytest.raises(StartError):
        put(store, 2)


def test_a_copy_under_another_name_is_damaged(store: Store) -> None:
    put(store, 1)
    store.path(1).rename(store.path(9))
    assert store.held().condition == "damaged"


def test_what_cannot_be_read_is_a_condition_and_takes_no_writes(store: Store) -> None:
    put(store, 1)
    (store.folder / "highest").write_text("many")
    assert store.held().condition == "unreadable"
    with pytest.raises(StartError):
        put(store, 2)


def test_copies_and_folder_are_for_their_owner_alone(store: Store) -> None:
    put(store, 1)
    assert store.path(1).stat().st_mode & 0o777 == 0o600
    assert store.folder.stat().st_mode & 0o777 == 0o700


def test_where_other_accounts_read_the_published_folder_their_group_reads_copies(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o2750)
    shared, before = Store(tmp_path), os.umask(0o077)
    try:
        put(shared, 1)
    finally:
        os.umask(before)
    assert shared.path(1).stat().st_mode & 0o777 == 0o640
    assert shared.folder.stat().st_mode & 0o7777 == 0o2750


def test_killed_at_any_moment_there_is_the_old_policy_or_the_new_one(tmp_path: Path) -> None:
    """A process applies one policy after the other and is killed in the middle, many times."""
    store, before = Store(tmp_path), 0
    for round_ in range(12):
        argv = [sys.executable, "-c", APPLIER, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.011 * (round_ + 1))
            process.send_signal(signal.SIGKILL)
        held = store.held()
        assert held.condition in ("active", "empty") if before == 0 else held.condition == "active"
        if held.copy is not None:
            assert held.copy.policy.startswith(b"revision: %d\n" % held.highest)
            assert held.highest >= before
            before = held.highest
    assert before > 12
