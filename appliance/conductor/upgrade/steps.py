"""Upgrade and rollback, in their order. What is in force changes at one point, and back at one.

1 signature   2 unpack beside   3 self-test of the new version   4 stop, once requests have ended
5 copy of configuration and state   6 migrate   7 switch   8 start   9 ready in time, or back
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.box.modeswitch import refresh
from conductor.box.place import Place
from conductor.errors import StartError, UpgradeError
from conductor.upgrade import archive, release
from conductor.upgrade.layout import STATE, Box
from conductor.upgrade.manager import Manager
from conductor.upgrade.versions import Version, linked, point, switch

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_SELF_TEST_S = 120.0
_SPARE_BYTES = 256 * 1024 * 1024

Say = Callable[[str], None]


@dataclass(frozen=True)
class Change:
    """What it takes to change versions on a box. `wait_s`: how long the new one may take to be
    ready; `say` tells people of each step."""

    box: Box
    manager: Manager
    say: Say
    wait_s: float = 90.0


def upgrade(change: Change, file: Path, keys: Sequence[Ed25519PublicKey]) -> Version:
    """Put the version of a release file in force.

    Raises `UpgradeError`; the version before is then in force again, with its state.
    """
    before = _in_force(change.box)
    manifest = release.read(file, keys)
    _must_fit(change.box, manifest)
    change.say(f"unpacking version {manifest.version}")
    version = release.unpack(change.box, file, manifest)
    try:
        change.say("self-test of the new version")
        self_test(change.box, version)
        _exchange(change, before, version)
    except UpgradeError:
        shutil.rmtree(version.folder, ignore_errors=True)
        raise
    return version


def rollback(change: Change, *, with_state: bool = False) -> Version:
    """Put the version before in force again.

    State stays, and with it what the audit log has recorded since, unless that version cannot read
    it or `with_state` is set: then the copy of the upgrade is put back, and the present state is
    copied first. Raises `UpgradeError`.
    """
    now, before = _in_force(change.box), linked(change.box.previous)
    if before is None or before == now:
        raise UpgradeError("there is no version to go back to")
    back = with_state or before.state_format != now.state_format
    copy = _copy_of(change.box, before, now) if back else None
    self_test(change.box, before)
    _stopped(change)
    kept = _keep(change, now, before)
    change.say(f"what is there now was copied to {kept}")
    if copy is not None:
        change.say(f"putting back configuration and state of {copy.name}")
        archive.restore(change.box, copy)
    _start(change, before)
    change.box.previous.unlink(missing_ok=True)
    if not change.manager.ready(change.wait_s, serving=False):
        raise UpgradeError(f"version {before.name} is in force, but is silent: see journalctl")
    return before


def self_test(box: Box, version: Version) -> None:
    """Let a version say who it is, and read this box's configuration. Raises `UpgradeError`."""
    said = _run(version, "--version")
    if version.name not in said.split():
        raise UpgradeError(f"version {version.name} says that it is another one: nothing changed")
    if (box.config / "appliance.yaml").exists():
        _run(version, "check", "--config", str(box.config))


def _exchange(change: Change, before: Version, version: Version) -> None:
    box, manager = change.box, change.manager
    ran = manager.running()
    serving = ran and manager.ready(2.0, serving=True)
    _stopped(change)
    try:
        copy = _keep(change, before, version)
        if version.state_format != before.state_format and version.migrate.exists():
            change.say("migrating configuration and state")
            _program(version.migrate, str(box.config), *(str(box.root / one) for one in STATE))
    except UpgradeError:
        _start(change, before)
        raise
    _start(change, version, run=ran)
    if ran and not manager.ready(change.wait_s, serving=serving):
        change.say(f"not ready within {change.wait_s:g} s: going back to {before.name}")
        _stopped(change)
        if version.state_format != before.state_format:
            archive.restore(box, copy)
        _start(change, before)
        raise UpgradeError(
            f"version {version.name} was not ready in time: {before.name} is in force again"
        )
    point(box.previous, before)


def _stopped(change: Change) -> None:
    change.say("stopping, after running requests have ended")
    change.manager.stop()


def _start(change: Change, version: Version, *, run: bool = True) -> None:
    switch(change.box, version)
    _keep_gap(change, version)
    change.manager.adopt()
    if run:
        change.say(f"starting version {version.name}")
        change.manager.start()


def _keep_gap(change: Change, version: Version) -> None:
    """On an air-gapped machine the gap is the one that this version ships."""
    try:
        refresh(Place(change.box.root), version.share)
    except (StartError, OSError) as error:
        change.say(f"the air gap is as the other version left it ({error}): conductor mode")


def _in_force(box: Box) -> Version:
    version = linked(box.current)
    if version is None:
        raise UpgradeError("no version is installed here: use the package, or install.sh")
    return version


def _must_fit(box: Box, manifest: release.Manifest) -> None:
    if (box.versions / manifest.version).exists():
        raise UpgradeError(f"version {manifest.version} is there already: nothing to do")
    if not (box.root / "usr/bin" / f"python{manifest.python}").exists():
        raise UpgradeError(
            f"this release needs Python {manifest.python}: take the one that was made for this box"
        )
    needed = manifest.unpacked + sum(
        fact.size for name, fact in manifest.files.items() if name.startswith("models/")
    )
    if shutil.disk_usage(box.home).free < needed + _SPARE_BYTES:
        raise UpgradeError(f"the disk of {box.home} needs {needed >> 20} MiB: make room first")


def _keep(change: Change, now: Version, other: Version) -> Path:
    """Copy configuration and state before changing to another version."""
    box = change.box
    box.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    file = box.backups / f"{now.name}-before-{other.name}-{at}.tar.gz"
    archive.save(box, now, file)
    return file


def _copy_of(box: Box, before: Version, now: Version) -> Path:
    copies = sorted(box.backups.glob(f"{before.name}-before-{now.name}-*.tar.gz"))
    if not copies:
        raise UpgradeError(f"no copy of the state of {before.name} is left: nothing changed")
    return copies[-1]


def _run(version: Version, *words: str) -> str:
    return _program(version.program, *words)


def _program(program: Path, *words: str) -> str:
    argv = [str(program), *words]
    try:
        done = subprocess.run(  # noqa: S603
            argv, capture_output=True, text=True, timeout=_SELF_TEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        raise UpgradeError(f"{program} cannot be run") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UpgradeError(f"'{program.name} {words[0]}' failed: {' '.join(said[:3])}")
    return done.stdout
