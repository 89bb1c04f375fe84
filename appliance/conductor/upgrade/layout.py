"""Where the appliance stands on a box. Everything hangs below `root`, so that a test can have its
own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CONFIG = "etc/conductor"
STATE = ("var/lib/conductor", "var/lib/conductor-published")
KEPT = (CONFIG, *STATE)
"""What a copy holds: configuration with its credentials, state, and what the API shows others."""


@dataclass(frozen=True)
class Box:
    """A machine, or a folder that stands for one."""

    root: Path = Path("/")

    @property
    def home(self) -> Path:
        """Holds `versions/V`, `current` and `previous`."""
        return self.root / "opt/conductor"

    @property
    def versions(self) -> Path:
        return self.home / "versions"

    @property
    def current(self) -> Path:
        """A link to the version in force."""
        return self.home / "current"

    @property
    def previous(self) -> Path:
        """A link to the version before, while a rollback to it is possible."""
        return self.home / "previous"

    @property
    def config(self) -> Path:
        return self.root / CONFIG

    @property
    def release_keys(self) -> Path:
        """Public keys, in PEM, of who may sign a release for this box."""
        return self.config / "release-keys"

    @property
    def backups(self) -> Path:
        """Copies that upgrades make: root's alone, they hold credentials."""
        return self.root / "var/lib/conductor-backups"

    @property
    def metrics_socket(self) -> Path:
        """Where the appliance says whether it is ready."""
        return self.root / "run/conductor/metrics.sock"

    @property
    def models(self) -> Path:
        return self.root / "var/lib/conductor-models"
