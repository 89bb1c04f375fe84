"""Which versions stand on the box, and the switch between them: one rename.

systemd reads units before `/opt` may be mounted, so they cannot be links into a version: the switch
copies them to where systemd looks, together with the accounts and directories that they need.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from conductor.errors import UpgradeError
from conductor.upgrade.layout import Box

NAME = re.compile(r"[0-9][0-9A-Za-z.+~-]{0,39}")

PLACES = {
    "units": "usr/lib/systemd/system",
    "sysusers.d": "usr/lib/sysusers.d",
    "tmpfiles.d": "usr/lib/tmpfiles.d",
}
"""Folders of a version's `share`, and where systemd looks for what is in them."""

_OURS = re.compile(r"conductor[-@.].*")


@dataclass(frozen=True)
class Version:
    """One version on the box."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def program(self) -> Path:
        return self.folder / "bin/conductor"

    @property
    def share(self) -> Path:
        return self.folder / "share"

    @property
    def migrate(self) -> Path:
        """A program that brings older state to this version's format, where there is one."""
        return self.share / "migrate"

    @property
    def state_format(self) -> int:
        """Versions of one format can read each other's state. Raises `UpgradeError`."""
        try:
            return int((self.share / "state-format").read_text("ascii"))
        except (OSError, ValueError):
            raise UpgradeError(f"version {self.name} is not whole: install it again") from None


def installed(box: Box) -> list[Version]:
    """Every version there, in no particular order of age."""
    with suppress(FileNotFoundError):
        return [
            Version(folder)
            for folder in sorted(box.versions.iterdir())
            if folder.is_dir() and NAME.fullmatch(folder.name)
        ]
    return []


def linked(link: Path) -> Version | None:
    """The version that `current` or `previous` points at, if it is there."""
    with suppress(OSError):
        name = link.readlink().name
        folder = link.parent / "versions" / name
        if folder.is_dir():
            return Version(folder)
    return None


def point(link: Path, version: Version) -> None:
    """Make a link point at a version, in one rename."""
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    # Absolute for the box itself, whatever folder stands for it here.
    new.symlink_to(Path("/opt/conductor/versions") / version.name)
    new.replace(link)


def switch(box: Box, version: Version) -> None:
    """Put a version in force: its units, accounts and directories, then the link."""
    for folder, place in PLACES.items():
        _copy(version.share / folder, box.root / place)
    point(box.current, version)


def _copy(source: Path, target: Path) -> None:
    """Each file whole or as before; units of ours that the version does not have go."""
    target.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in source.iterdir()}
    for name in names:
        new = target / f".{name}.new"
        shutil.copyfile(source / name, new)
        new.chmod(0o644)
        new.replace(target / name)
    for path in target.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in names and path.is_file():
            path.unlink()
