"""Writing a bundle: whole or not there, whatever happens; and the commands around it."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from conductor.errors import BundleError
from conductor.planner import trust
from conductor.planner.bundle import open_bundle
from conductor.planner.manifest import MAX_TOTAL_BYTES, Refusal
from conductor.process.keyfiles import fingerprint, load_private, load_public, public_pem
from conductor_build import bundle as writer
from conductor_build.bundle import write_bundle
from conductor_build.cli import conductor_build
from support.bundles import FILES, KEY, PROVENANCE, TRUSTED, manifest, write
from support.written import FACTS

BIG = {**FILES, "report/curves/big.png": os.urandom(1 << 20)}


def refusal(out: Path, files: Any = FILES, **changes: Any) -> str:
    with pytest.raises(BundleError) as caught:
        write_bundle(out, files, replace(FACTS, **changes), KEY)
    assert str(caught.value).isprintable()
    return str(caught.value.reason)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- what is written --------------------------------------------------------------------------


def test_what_is_written_opens(tmp_path: Path) -> None:
    written = write_bundle(tmp_path / "new" / "b", FILES, FACTS, KEY)
    opened = open_bundle(tmp_path / "new" / "b", TRUSTED)
    assert written == opened
    assert opened.manifest == manifest()
    assert {path: opened.read(path) for path in FILES} == FILES
    assert names(tmp_path / "new") == ["b"]


def test_the_same_contents_give_the_same_bundle(tmp_path: Path) -> None:
    one = write_bundle(tmp_path / "1", FILES, FACTS, KEY)
    two = write_bundle(tmp_path / "2", dict(reversed(FILES.items())), FACTS, KEY)
    assert one.id == two.id
    assert (tmp_path / "1/manifest.sig").read_bytes() == (tmp_path / "2/manifest.sig").read_bytes()


def test_contents_may_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"from a file")
    files = {**FILES, "pocket/decoder.onnx": tmp_path / "weights"}
    assert write_bundle(tmp_path / "b", files, FACTS, KEY).read("pocket/decoder.onnx") == (
        b"from a file"
    )


def test_created_is_now_unless_it_is_given(tmp_path: Path) -> None:
    before = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = write_bundle(tmp_path / "b", FILES, replace(FACTS, created=None), KEY).manifest.created
    assert before <= made <= datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_another_user_can_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_bundle(tmp_path / "b", FILES, FACTS, KEY)
    finally:
        os.umask(before)
    modes = {p.stat().st_mode & 0o777 for p in (tmp_path / "b").rglob("*") if p.is_file()}
    folders = {p.stat().st_mode & 0o777 for p in (tmp_path / "b").rglob("*") if p.is_dir()}
    assert (modes, folders) == ({0o644}, {0o755})
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o755


def test_all_of_it_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    write_bundle(tmp_path / "b", FILES, FACTS, KEY)
    place = next(path for path in synced if path.endswith("/manifest.sig")).rpartition("/")[0]
    order = [os.path.relpath(path, place) for path in synced]
    assert order[: len(FILES)] == sorted(FILES)
    assert order[len(FILES) : len(FILES) + 2] == ["manifest.json", "manifest.sig"]
    assert set(order[len(FILES) + 2 : -1]) == {"plan", "pocket", "report", "report/curves", "."}
    assert synced[-1] == str(tmp_path)


# -- what is not ------------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, dict[str, Any]]] = {
    "no files": ({}, {}),
    "no decoder": ({"pocket/seen.bin": b""}, {}),
    "a path out of the bundle": ({**FILES, "pocket/../../x": b""}, {}),
    "an absolute path": ({**FILES, "/tmp/x": b""}, {}),
    "a manifest of its own": ({**FILES, "manifest.json": b""}, {}),
    "too large": ({**FILES, "pocket/x": bytes(MAX_TOTAL_BYTES)}, {}),
    "a recipe with NaN": (
        FILES,
        {"provenance": replace(PROVENANCE, recipe={"x": float("nan")})},
    ),
    "a hash that is none": (FILES, {"provenance": replace(PROVENANCE, data={"x": "y"})}),
    "negative features": (FILES, {"features": -1}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_would_not_open_is_not_written(tmp_path: Path, name: str) -> None:
    files, changes = WRONG[name]
    assert refusal(tmp_path / "b", files, **changes) == Refusal.MANIFEST
    assert names(tmp_path) == []


def test_a_source_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    for source in (tmp_path / "none", tmp_path):
        files = {**FILES, "pocket/decoder.onnx": source}
        assert refusal(tmp_path / "b", files) == Refusal.WRITE
    assert names(tmp_path) == []


def test_a_path_that_is_file_and_folder_is_a_clear_error(tmp_path: Path) -> None:
    assert refusal(tmp_path / "b", {**FILES, "pocket/seen.bin/x": b""}) == Refusal.WRITE
    assert names(tmp_path) == []


def test_a_bundle_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    old = write_bundle(tmp_path / "b", FILES, FACTS, KEY)
    assert refusal(tmp_path / "b", BIG) == Refusal.WRITE
    assert open_bundle(tmp_path / "b", TRUSTED) == old
    assert names(tmp_path) == ["b"]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.write_bytes(b"mine"),
        lambda p: p.symlink_to("none"),
        lambda p: p.symlink_to("."),
        lambda p: (p.mkdir(), (p / "mine").write_bytes(b"")),
        os.mkfifo,
    ],
    ids=["file", "dangling link", "link", "directory", "pipe"],
)
def test_whatever_else_is_there_stays(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "b")
    before = (tmp_path / "b").lstat()
    assert refusal(tmp_path / "b") == Refusal.WRITE
    assert (tmp_path / "b").lstat() == before


def test_an_empty_directory_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    assert write_bundle(tmp_path / "b", FILES, FACTS, KEY).manifest == manifest()


def test_what_appears_while_it_is_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = writer.open_bundle

    def slow(*args: Any) -> Any:
        write(tmp_path / "b")
        return real(*args)

    monkeypatch.setattr(writer, "open_bundle", slow)
    assert refusal(tmp_path / "b", BIG) == Refusal.WRITE
    assert open_bundle(tmp_path / "b", TRUSTED).manifest == manifest()
    assert names(tmp_path) == ["b"]


def test_of_many_writers_at_once_one_wins_and_nothing_is_left(tmp_path: Path) -> None:
    ends: list[str] = []
    start = threading.Barrier(8)

    def attempt(number: int) -> None:
        files = {**FILES, "pocket/decoder.onnx": bytes([number])}
        start.wait()
        try:
            ends.append(write_bundle(tmp_path / "b", files, FACTS, KEY).id)
        except BundleError as error:
            ends.append(str(error.reason))

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = open_bundle(tmp_path / "b", TRUSTED).id
    assert sorted(ends) == sorted([won, *[str(Refusal.WRITE)] * 7])
    assert names(tmp_path) == ["b"]


# -- disks that are full or fail --------------------------------------------------------------


def failing_at(number: int, real: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def fail(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise OSError(errno.ENOSPC, "text of the system")
        return real(*args, **more)

    return fail


@pytest.mark.parametrize("call", ["fsync", "open", "fchmod"])
def test_a_full_disk_at_any_moment_leaves_nothing(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(os, call)
    for number in range(1, 100):
        out = tmp_path / str(number) / "b"
        monkeypatch.setattr(os, call, failing_at(number, real))
        try:
            write_bundle(out, FILES, FACTS, KEY)
            break
        except BundleError as error:
            assert error.reason in (Refusal.WRITE, Refusal.UNREADABLE)
            assert "No space left on device" in str(error)
            if "in place" in str(error):
                assert number > 1
                open_bundle(out, TRUSTED)
            else:
                assert not out.exists()
        finally:
            monkeypatch.setattr(os, call, real)
    assert number >= len(FILES)
    assert [path for path in tmp_path.rglob("*") if "partial" in path.name] == []


def test_a_file_that_the_disk_cannot_hold_leaves_nothing(tmp_path: Path) -> None:
    """For real: the kernel refuses to write beyond a limit, in a process of its own."""
    child = _write_in_child(tmp_path / "b", BIG, limit=100_000)
    child.join()
    assert child.exitcode == 7
    assert names(tmp_path) == []


def _child(out: Path, files: dict[str, bytes], limit: int) -> None:
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        write_bundle(out, files, FACTS, KEY)
    except BundleError as error:
        os._exit(7 if error.reason == Refusal.WRITE and "File too large" in str(error) else 8)
    os._exit(0)


def _write_in_child(
    out: Path, files: dict[str, bytes], limit: int = 0
) -> multiprocessing.process.BaseProcess:
    child = multiprocessing.get_context("fork").Process(target=_child, args=(out, files, limit))
    child.start()
    return child


# -- kills ------------------------------------------------------------------------------------


def test_a_kill_at_any_step_leaves_no_bundle_or_a_whole_one(tmp_path: Path) -> None:
    tries = [
        json.loads(line)
        for line in subprocess.run(
            [sys.executable, "-m", "support.bundle_kills", str(tmp_path)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        ).stdout.splitlines()
    ]
    whole = tries[-1]["state"]
    assert len(whole) == 64 and tries[-1]["ended"] == 0
    killed = [one["state"] for one in tries[:-1]]
    assert len(killed) > 3 * len(FILES)
    assert set(killed) <= {"absent", whole}
    assert killed.count("absent") > 2 * len(FILES)
    # Never more than the newest leftover, and none in the end.
    assert max(sum("partial" in name for name in one["names"]) for one in tries) == 1
    assert not any("partial" in name for name in tries[-1]["names"])


@pytest.mark.parametrize("seed", range(8))
def test_a_kill_at_any_time_leaves_no_bundle_or_a_whole_one(tmp_path: Path, seed: int) -> None:
    child = _write_in_child(tmp_path / "b", BIG)
    child.join(0.004 * seed)
    child.kill()
    child.join()
    if (tmp_path / "b").exists():
        open_bundle(tmp_path / "b", TRUSTED)
        return
    write_bundle(tmp_path / "b", FILES, FACTS, KEY)
    assert names(tmp_path) == ["b"]


def test_a_writer_at_work_is_not_swept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = writer.open_bundle

    def in_between(*args: Any) -> Any:
        monkeypatch.setattr(writer, "open_bundle", real)
        write_bundle(tmp_path / "b", BIG, FACTS, KEY)
        return real(*args)

    monkeypatch.setattr(writer, "open_bundle", in_between)
    assert refusal(tmp_path / "b") == Refusal.WRITE  # by the rename, with its files still there
    assert names(tmp_path) == ["b"]


@pytest.mark.parametrize("moment", ["taken", "removed"])
def test_a_directory_that_another_takes_for_abandoned_is_not_used(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making it and locking it, which is all the time there is for that."""
    real = tempfile.mkdtemp
    with ExitStack() as stack:

        def found(*args: Any, **more: Any) -> str:
            folder = real(*args, **more)
            fcntl.flock(stack.enter_context(writer._descriptor(Path(folder))), fcntl.LOCK_EX)
            if moment == "removed":
                Path(folder).rmdir()
            return folder

        monkeypatch.setattr(tempfile, "mkdtemp", found)
        assert refusal(tmp_path / "b") == Refusal.WRITE
    assert names(tmp_path) == []


def test_a_directory_that_was_removed_just_before_its_lock_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        next(tmp_path.glob(".b.partial-*")).rmdir()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert refusal(tmp_path / "b") == Refusal.WRITE
    assert names(tmp_path) == []


def test_without_locks_it_is_written_and_nothing_counts_as_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "")

    (tmp_path / ".b.partial-1").mkdir()
    monkeypatch.setattr(fcntl, "flock", none)
    write_bundle(tmp_path / "b", FILES, FACTS, KEY)
    assert names(tmp_path) == [".b.partial-1", "b"]


def test_only_leftovers_of_the_same_bundle_are_removed(tmp_path: Path) -> None:
    for name in (".b.partial-1", ".b2.partial-1", "b.partial-1"):
        (tmp_path / name).mkdir()
    (tmp_path / ".b.partial-2").symlink_to(".b2.partial-1")
    write_bundle(tmp_path / "b", FILES, FACTS, KEY)
    assert names(tmp_path) == [".b.partial-2", ".b2.partial-1", "b", "b.partial-1"]


# -- commands ---------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(conductor_build, ["bundle", *map(str, arguments)])


@pytest.fixture
def maker(tmp_path: Path) -> Path:
    """A key pair made by the command; gives the private key's path."""
    assert run("keygen", "--out", tmp_path / "site.key").exit_code == 0
    return tmp_path / "site.key"


def test_a_bundle_signed_with_a_made_key_verifies(tmp_path: Path, maker: Path) -> None:
    made = write_bundle(tmp_path / "b", FILES, FACTS, load_private(maker, "bundle"))
    result = run("verify", tmp_path / "b", "--key", f"{maker}.pub")
    assert result.exit_code == 0
    assert made.id in result.stdout and made.signer in result.stdout
    assert "reward 0.81" in result.stdout


def test_verify_says_everything_in_json(tmp_path: Path, maker: Path) -> None:
    made = write_bundle(tmp_path / "b", FILES, FACTS, load_private(maker, "bundle"))
    result = run("verify", tmp_path / "b", "--key", f"{maker}.pub", "--json")
    said = json.loads(result.stdout)
    assert said["ok"] is True
    assert (said["id"], said["signer"]) == (made.id, made.signer)
    assert said["provenance"]["recipe"] == PROVENANCE.recipe
    assert said["files"].keys() == FILES.keys()


def test_a_made_key_is_private_and_its_fingerprint_is_shown(tmp_path: Path) -> None:
    result = run("keygen", "--out", tmp_path / "k")
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    assert fingerprint(load_public(tmp_path / "k.pub", "bundle")) in result.stdout
    assert "PRIVATE" not in result.stdout


def test_keygen_replaces_nothing(maker: Path) -> None:
    before = maker.read_bytes()
    assert run("keygen", "--out", maker).exit_code == 1
    assert maker.read_bytes() == before


REFUSED: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "tampered": (lambda b: (b / "plan/limits.json").write_bytes(b"{}"), "tampered", 1),
    "unfinished": (lambda b: (b / "manifest.sig").unlink(), "unsigned", 1),
    "gone": (shutil.rmtree, "absent", 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_verify_tells_a_bad_bundle_from_none(tmp_path: Path, maker: Path, name: str) -> None:
    act, reason, code = REFUSED[name]
    write_bundle(tmp_path / "b", FILES, FACTS, load_private(maker, "bundle"))
    act(tmp_path / "b")
    result = run("verify", tmp_path / "b", "--key", f"{maker}.pub", "--json")
    assert (result.exit_code, json.loads(result.stdout)["reason"]) == (code, reason)
    people = run("verify", tmp_path / "b", "--key", f"{maker}.pub")
    assert (people.exit_code, people.stdout) == (code, "")
    assert people.stderr.startswith("REFUSED")


def test_verify_trusts_nobody_by_itself(tmp_path: Path, maker: Path) -> None:
    write_bundle(tmp_path / "b", FILES, FACTS, KEY)
    assert run("verify", tmp_path / "b").exit_code == 1
    assert run("verify", tmp_path / "b", "--key", f"{maker}.pub").exit_code == 1
    assert run("verify", tmp_path / "b", "--key", maker).exit_code == 2


def test_verify_knows_the_shipped_bundle_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "shipped_folder", lambda: tmp_path)
    assert run("verify", "pocket").exit_code == 2
    write_bundle(tmp_path / "pocket", FILES, FACTS, KEY)
    (tmp_path / "pocket.pub").write_bytes(public_pem(KEY.public_key()))
    assert run("verify", "pocket").exit_code == 0
