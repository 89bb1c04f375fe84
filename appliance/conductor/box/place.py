"""Where an installation's files stand: everything below one root, `/` on a running machine.

Another root is a folder that holds an installation (a chroot, a mounted disk, a test): it is read
and written, and nothing that runs is asked or told.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CONFIG = Path("/etc/conductor")


@dataclass(frozen=True)
class Place:
    """An installation below `root`."""

    root: Path = Path("/")

    def at(self, path: str | Path) -> Path:
        """Where the absolute `path` of the running machine stands here."""
        return self.root / Path(path).relative_to("/")

    def named(self, path: Path) -> str:
        """The other way round: what a path below the root is called on the running machine."""
        return "/" + path.relative_to(self.root).as_posix()

    @property
    def running(self) -> bool:
        """Whether this is the machine that we run on, under systemd."""
        return self.root == Path("/") and Path("/run/systemd/system").is_dir()

    @property
    def config(self) -> Path:
        return self.at(CONFIG)

    @property
    def overrides(self) -> Path:
        """The administrator's units and drop-ins: they count before the shipped ones."""
        return self.at("/etc/systemd/system")

    @property
    def shipped_units(self) -> Path:
        return self.at("/usr/lib/systemd/system")

    @property
    def share(self) -> Path:
        """What the package brings for `conductor setup` and `conductor mode`."""
        return self.at("/usr/share/conductor")

    @property
    def versions(self) -> Path:
        return self.at("/opt/conductor")

    @property
    def trusted_owners(self) -> frozenset[int]:
        """Who may own files of the installation: root; in another root whoever owns that."""
        return frozenset({0} if self.root == Path("/") else {0, self.root.stat().st_uid})
