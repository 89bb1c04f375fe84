"""Putting a copy back, for `conductor restore`: never under a running appliance, never without a
copy of what it replaces."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from conductor.errors import UpgradeError
from conductor.upgrade import archive
from conductor.upgrade.layout import KEPT, Box
from conductor.upgrade.manager import Manager
from conductor.upgrade.versions import linked


def restored(box: Box, manager: Manager, file: Path) -> Path | None:
    """Put `file` in the place of what is there, and say where that was copied to; None when there
    was nothing. Raises `UpgradeError`, and then nothing changed."""
    version = linked(box.current)
    if version is None:
        raise UpgradeError("no version is installed here: use the package, or install.sh, first")
    if manager.running():
        raise UpgradeError("the appliance runs: first 'systemctl stop conductor.target'")
    found = archive.about(file)
    if found.state_format != version.state_format:
        raise UpgradeError(
            f"the copy is of version {found.version}, whose state version {version.name} cannot "
            "read: put that version in force first"
        )
    kept = None
    if any((box.root / name).is_dir() for name in KEPT):
        box.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        kept = box.backups / f"{version.name}-before-restore-{at}.tar.gz"
        archive.save(box, version, kept)
    archive.restore(box, file)
    manager.adopt()  # directories with the owners that this box gives them
    return kept
