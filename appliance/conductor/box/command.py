"""The seam to other programs of the machine: systemctl, nft, nvidia-smi. Tests give a function."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NOT_THERE = 127
LIMIT_S = 120.0


@dataclass(frozen=True)
class Ran:
    """How a program ended, and what it printed."""

    code: int
    output: str = ""

    @property
    def good(self) -> bool:
        return self.code == 0


Run = Callable[[Sequence[str]], Ran]


def run(arguments: Sequence[str]) -> Ran:
    """Run a program to its end, without a shell. One that is not there, or does not end, has
    failed. Never raises."""
    try:
        done = subprocess.run(  # noqa: S603  no shell, and no argument of a client's
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return Ran(NOT_THERE)
    return Ran(done.returncode, done.stdout.decode("utf-8", "replace"))


def nothing_runs(arguments: Sequence[str]) -> Ran:
    """For an installation that is not the running machine."""
    return Ran(NOT_THERE)
