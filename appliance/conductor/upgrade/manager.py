"""What systemd is asked to do, and how the appliance is asked whether it is ready."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import Protocol

from conductor.box.modeswitch import GUARD
from conductor.errors import UpgradeError
from conductor.process.probe import answers
from conductor.upgrade.layout import Box

TARGET = "conductor.target"
SERVICE = "conductor.service"
EVERYTHING = (
    "conductor*.socket",
    *(SERVICE, "conductor-planner.service", "conductor-egress*.service"),
    "conductor-worker@*.service",
)
"""Patterns of what `stop` ends: the firewall rules of the air gap stay."""
_PAUSE_S = 0.25
_STOP_S = 180.0


class Manager(Protocol):
    """The seam to systemd; tests pass one that pretends."""

    def running(self) -> bool:
        """Whether the appliance runs."""

    def stop(self) -> None:
        """End it, after its requests."""

    def start(self) -> None:
        """Begin it. What does not start is noticed by `ready`."""

    def adopt(self) -> None:
        """Take over changed units, accounts and directories."""

    def ready(self, limit_s: float, *, serving: bool) -> bool:
        """Wait until it answers; with `serving` until it would serve a request."""


class Systemd:
    """The manager of this machine."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def running(self) -> bool:
        return _call("systemctl", "is-active", "--quiet", SERVICE)

    def stop(self) -> None:
        # Named all: stopping the target would not wait for what it takes along. Listeners too: one
        # that stayed would start its service half-way.
        _must("systemctl", "stop", TARGET, *EVERYTHING)

    def start(self) -> None:
        _call("systemctl", "reset-failed", "conductor*")
        _call("systemctl", "start", TARGET)

    def adopt(self) -> None:
        _must("systemd-sysusers", "/usr/lib/sysusers.d/conductor.conf")
        _must("systemd-tmpfiles", "--create", "/usr/lib/tmpfiles.d/conductor.conf")
        _must("systemctl", "daemon-reload")
        _call("systemctl", "try-reload-or-restart", GUARD)

    def ready(self, limit_s: float, *, serving: bool) -> bool:
        path = "/readyz" if serving else "/healthz"
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if asyncio.run(answers(self._box.metrics_socket, path)) and self.running():
                return True
            time.sleep(_PAUSE_S)
        return False


def _call(*argv: str) -> bool:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_STOP_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _must(*argv: str) -> None:
    if not _call(*argv):
        raise UpgradeError(f"'{' '.join(argv)}' failed: see 'journalctl -xe'")
