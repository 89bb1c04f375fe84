"""Upgrade and rollback in a folder that stands for a box, with a systemd that pretends."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.box.airgap import Marker, read_marker
from conductor.errors import UpgradeError
from conductor.upgrade import archive
from conductor.upgrade.layout import Box
from conductor.upgrade.restoring import restored
from conductor.upgrade.steps import Change, _start, rollback, upgrade
from conductor.upgrade.versions import Version, linked, switch

KEY = Ed25519PrivateKey.generate()
PROGRAM = '#!/bin/sh\n[ "$1" = --version ] && echo "conductor {name}" && exit\nexit {check}\n'
UNIT = "[Service]\nExecStart=/bin/{name}\n"


@dataclass
class Pretended:
    """Serves every version but those in `broken`."""

    box: Box
    broken: tuple[str, ...] = ()
    runs: bool = True
    done: list[str] = field(default_factory=list)

    def running(self) -> bool:
        return self.runs

    def stop(self) -> None:
        self.runs = False
        self.done.append("stop")

    def start(self) -> None:
        self.runs = True
        self.done.append(f"start {self._version()}")

    def adopt(self) -> None:
        self.done.append("adopt")

    def ready(self, limit_s: float, *, serving: bool) -> bool:
        return self.runs and self._version() not in self.broken

    def _version(self) -> str:
        version = linked(self.box.current)
        assert version is not None
        return version.name


def lay(folder: Path, name: str, *, state_format: int = 1, check: int = 0) -> Version:
    """A version, as `tree.sh` would lay it out."""
    share = folder / "share"
    for part in ("units", "sysusers.d", "tmpfiles.d"):
        (share / part).mkdir(parents=True)
    (share / "units/conductor.service").write_text(UNIT.format(name=name))
    (share / "state-format").write_text(f"{state_format}\n")
    (folder / "bin").mkdir()
    (folder / "bin/conductor").write_text(PROGRAM.format(name=name, check=check))
    (folder / "bin/conductor").chmod(0o755)
    return Version(folder)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """Version 1.0 in force, with configuration and state."""
    box = Box(tmp_path / "box")
    version = lay(box.versions / "1.0", "1.0")
    switch(box, version)
    (box.root / "usr/bin").mkdir(parents=True)
    (box.root / "usr/bin/python3.11").write_text("")
    for folder in ("etc/conductor", "var/lib/conductor", "var/lib/conductor-published"):
        (box.root / folder).mkdir(parents=True)
    (box.config / "appliance.yaml").write_text("mode: local-only\n")
    state(box).write_text("one")
    return box


def state(box: Box) -> Path:
    return box.root / "var/lib/conductor/state"


def made(
    tmp_path: Path, name: str, *, state_format: int = 1, check: int = 0, migrate: str = ""
) -> Path:
    """A release file."""
    home = tmp_path / f"tree-{name}/opt/conductor/versions/{name}"
    lay(home, name, state_format=state_format, check=check)
    if migrate:
        (home / "share/migrate").write_text(f"#!/bin/sh\n{migrate}\n")
        (home / "share/migrate").chmod(0o755)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(tmp_path / f"tree-{name}", ".")
    tree = packed.getvalue()
    facts = {
        "kind": "conductor release 1",
        "version": name,
        "python": "3.11",
        "state_format": state_format,
        "unpacked": 4096,
        "files": {"tree.tar.gz": {"size": len(tree), "sha256": sha256(tree).hexdigest()}},
    }
    manifest = json.dumps(facts).encode()
    out = tmp_path / f"{name}.release"
    members = (
        ("manifest.json", manifest),
        ("manifest.sig", KEY.sign(manifest)),
        ("tree.tar.gz", tree),
    )
    with tarfile.open(out, "w:") as tar:
        for member, data in members:
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out


def change(box: Box, manager: Pretended) -> Change:
    return Change(box, manager, lambda line: None, wait_s=0.1)


def test_a_version_is_put_in_force_with_its_units(box: Box, tmp_path: Path) -> None:
    manager = Pretended(box)
    version = upgrade(change(box, manager), made(tmp_path, "2.0"), [KEY.public_key()])
    assert version.name == "2.0"
    assert manager.done == ["stop", "adopt", "start 2.0"]
    unit = box.root / "usr/lib/systemd/system/conductor.service"
    assert unit.read_text() == UNIT.format(name="2.0")
    assert len(list(box.backups.iterdir())) == 1


def test_on_an_air_gapped_machine_the_gap_is_the_new_versions(box: Box, tmp_path: Path) -> None:
    version = lay(box.versions / "2.0", "2.0")
    gap = version.share / "air-gapped" / "conductor.service.d"
    gap.mkdir(parents=True)
    (gap / "50-air-gapped.conf").write_text("[Service]\nPrivateNetwork=yes\n")
    old = "/etc/systemd/system/conductor-old.service"
    (box.root / old[1:]).parent.mkdir(parents=True)
    (box.root / old[1:]).write_text("of the version before")
    marker = Marker("air-gapped", 3, "2026-08-01T12:00:00Z", 0, (old,))
    (box.config / "mode.json").write_bytes(marker.as_json())
    _start(change(box, Pretended(box)), version)
    target = "/etc/systemd/system/conductor.service.d/50-air-gapped.conf"
    assert (box.root / target[1:]).read_text().endswith("PrivateNetwork=yes\n")
    assert not (box.root / old[1:]).exists()
    assert read_marker(box.config) == replace(marker, files=(target,))


def test_one_that_was_stopped_stays_so(box: Box, tmp_path: Path) -> None:
    manager = Pretended(box, runs=False)
    upgrade(change(box, manager), made(tmp_path, "2.0"), [KEY.public_key()])
    assert not any(step.startswith("start") for step in manager.done)


def test_one_that_fails_its_self_test_touches_nothing(box: Box, tmp_path: Path) -> None:
    manager = Pretended(box)
    with pytest.raises(UpgradeError, match="check"):
        upgrade(change(box, manager), made(tmp_path, "2.0", check=1), [KEY.public_key()])
    assert manager.done == []
    assert [path.name for path in box.versions.iterdir()] == ["1.0"]


def test_one_that_is_not_ready_in_time_gives_way(box: Box, tmp_path: Path) -> None:
    manager = Pretended(box, broken=("2.0",))
    with pytest.raises(UpgradeError, match=r"1\.0 is in force again"):
        upgrade(change(box, manager), made(tmp_path, "2.0"), [KEY.public_key()])
    assert manager.done[-1] == "start 1.0"
    unit = box.root / "usr/lib/systemd/system/conductor.service"
    assert unit.read_text() == UNIT.format(name="1.0")
    assert not (box.versions / "2.0").exists()
    assert not box.previous.exists()


def test_state_that_it_migrated_comes_back_then(box: Box, tmp_path: Path) -> None:
    manager = Pretended(box, broken=("2.0",))
    file = made(tmp_path, "2.0", state_format=2, migrate="echo two >$2/state")
    with pytest.raises(UpgradeError):
        upgrade(change(box, manager), file, [KEY.public_key()])
    assert state(box).read_text() == "one"


def test_a_migration_that_fails_leaves_the_version_before(box: Box, tmp_path: Path) -> None:
    manager = Pretended(box)
    file = made(tmp_path, "2.0", state_format=2, migrate="exit 1")
    with pytest.raises(UpgradeError):
        upgrade(change(box, manager), file, [KEY.public_key()])
    assert manager.done[-1] == "start 1.0"


def test_a_rollback_keeps_what_came_since(box: Box, tmp_path: Path) -> None:
    manager = Pretended(box)
    upgrade(change(box, manager), made(tmp_path, "2.0"), [KEY.public_key()])
    state(box).write_text("since")
    assert rollback(change(box, manager)).name == "1.0"
    assert state(box).read_text() == "since"
    with pytest.raises(UpgradeError, match="no version to go back to"):
        rollback(change(box, manager))


@pytest.mark.parametrize(("state_format", "with_state"), [(2, False), (1, True)])
def test_a_rollback_restores_state_when_it_must_or_is_told_to(
    state_format: int, with_state: bool, box: Box, tmp_path: Path
) -> None:
    manager = Pretended(box)
    file = made(tmp_path, "2.0", state_format=state_format)
    upgrade(change(box, manager), file, [KEY.public_key()])
    state(box).write_text("since")
    rollback(change(box, manager), with_state=with_state)
    assert state(box).read_text() == "one"
    newest = max(box.backups.glob("2.0-before-1.0-*"))
    archive.restore(box, newest)  # what came since is not lost either
    assert state(box).read_text() == "since"


def test_a_copy_is_for_root_alone_and_comes_back_whole(box: Box, tmp_path: Path) -> None:
    file = tmp_path / "copy.tar.gz"
    version = linked(box.current)
    assert version is not None
    archive.save(box, version, file)
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UpgradeError, match="is there already"):
        archive.save(box, version, file)
    state(box).write_text("lost")
    (box.root / "var/lib/conductor/extra").write_text("")
    restored(box, Pretended(box, runs=False), file)
    assert [path.name for path in state(box).parent.iterdir()] == ["state"]
    assert state(box).read_text() == "one"


def test_nothing_is_restored_under_a_running_appliance(box: Box, tmp_path: Path) -> None:
    with pytest.raises(UpgradeError, match="the appliance runs"):
        restored(box, Pretended(box), tmp_path / "copy.tar.gz")


def test_any_other_file_is_no_copy(box: Box, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"nothing")
    with pytest.raises(UpgradeError):
        restored(box, Pretended(box, runs=False), other)
