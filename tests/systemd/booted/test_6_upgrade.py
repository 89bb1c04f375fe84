"""Upgrade, its failures, rollback, backup and restore: on the running appliance."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from box import ETC, HERE, STATE, active, ask, call, content, ready, run, show, status, stop, until

pytestmark = pytest.mark.full

FOLDER = Path("/root/releases")
KEYS = ETC / "release-keys"


@pytest.fixture(scope="module", autouse=True)
def releases() -> None:
    FOLDER.mkdir(mode=0o700)
    run("/opt/conductor/current/bin/python", "-B", HERE / "releases.py", FOLDER)
    KEYS.mkdir(exist_ok=True)
    shutil.copy(FOLDER / "release.pub", KEYS)


def first() -> str:
    """The package's own version."""
    return run("dpkg-query", "-W", "-f=${Version}", "conductor-appliance")


def in_force() -> str:
    return Path("/opt/conductor/current").resolve().name


def upgrade(name: str, *words: str) -> str:
    return run("conductor", "upgrade", FOLDER / f"{name}.release", *words, limit_s=180)


def failed(*argv: str | Path) -> str:
    assert status(*argv, limit_s=240) != 0
    return run(*argv, check=False, limit_s=240)


def test_a_release_that_a_stranger_signed_is_refused() -> None:
    said = failed("conductor", "upgrade", FOLDER / "stranger.release")
    assert "no trusted key has signed" in said
    assert in_force() == first()


def test_a_release_that_was_changed_is_refused() -> None:
    bad = FOLDER / "changed.release"
    data = bytearray((FOLDER / "good.release").read_bytes())
    data[len(data) // 2] ^= 1
    bad.write_bytes(data)
    assert status("conductor", "upgrade", bad, limit_s=180) != 0
    assert in_force() == first()
    assert not Path("/opt/conductor/versions/9.0.0").exists()
    assert ready()


def test_a_release_is_put_in_force() -> None:
    upgrade("good")
    assert in_force() == "9.0.0"
    assert ready()
    assert content(ask("Are you the new one?"))


def test_a_release_that_cannot_serve_goes_back_by_itself() -> None:
    said = run("conductor", "upgrade", FOLDER / "broken.release", "--wait", "6", check=False)
    assert "9.0.0 is in force again" in said
    assert in_force() == "9.0.0"
    assert content(ask("Still the one before?"))


def test_it_is_rolled_back_without_losing_what_was_recorded() -> None:
    (STATE / "marker").write_text("since the upgrade")
    run("conductor", "rollback", limit_s=180)
    assert in_force() == first()
    until(ready, 30)
    assert (STATE / "marker").read_text() == "since the upgrade"
    run("conductor", "audit", "verify", STATE / "audit")


def test_state_comes_back_with_a_version_that_could_not_read_the_new_one() -> None:
    (STATE / "marker").write_text("of format 1\n")
    upgrade("newformat")
    assert (STATE / "marker").read_text() == "of format 2\n"
    run("conductor", "rollback", limit_s=180)
    assert in_force() == first()
    assert (STATE / "marker").read_text() == "of format 1\n"
    until(ready, 30)
    assert STATE.owner() == "conductor"
    assert content(ask("And now?"))


def test_a_backup_is_restored() -> None:
    (STATE / "marker").write_text("kept")
    run("conductor", "backup", "/root/box.tar.gz")
    assert Path("/root/box.tar.gz").stat().st_mode & 0o777 == 0o600
    (STATE / "marker").write_text("lost")
    assert "the appliance runs" in failed("conductor", "restore", "/root/box.tar.gz")
    stop()
    run("conductor", "restore", "/root/box.tar.gz")
    assert (STATE / "marker").read_text() == "kept"
    run("systemctl", "start", "conductor.target")
    until(ready, 30)
    assert content(ask("Restored?"))
    assert (ETC / "credentials/vendor/played").stat().st_mode & 0o777 == 0o600


def test_everything_runs_afterwards() -> None:
    assert active("conductor.service")
    assert show("conductor.service", "Result") == "success"
    assert call("GET", "/v1/models").status == 200
