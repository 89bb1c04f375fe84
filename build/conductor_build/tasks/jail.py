"""Runs Python that a model wrote, locked down: no network, no environment, its own folder.

    done = Jail().run(source, stdin=b"...")

A fresh process each time, which `jailed.py` locks down before it becomes the program. `Done.locks`
says which locks the kernel granted: on Linux 5.13 or newer with user namespaces all of them. Where
none keeps the network away, nothing is run unless `weak` says so. Memory, CPU and wall time are
limited everywhere.

Left out: judging what came of it (`judge.py`). A program that is out to fool the tests that run in
one interpreter with it can do that.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from conductor_build.tasks.common import Void, VoidReason

MAX_OUTPUT_BYTES = 1 << 20
"""Of the standard output; a program that writes more is ended by the kernel."""
_INSIDE = Path(__file__).with_name("jailed.py")
_PREFIX, _WORK = "jail-", "work"
_OFF_THE_NETWORK = frozenset({"net", "landlock"})
_SYSTEM = ("/usr", "/lib", "/lib64")


@dataclass(frozen=True)
class Done:
    """How a program ended. `status` is its exit code, negative for the signal that ended it, and
    None when its time was up."""

    status: int | None
    output: bytes
    locks: frozenset[str]


@dataclass(frozen=True)
class Jail:
    """What a program may use. `readable` are further folders that it may read."""

    memory_bytes: int = 512 << 20
    cpu_s: int = 5
    """0: not limited."""
    wall_s: float = 10.0
    file_bytes: int = MAX_OUTPUT_BYTES
    disk_bytes: int = 16 << 20
    """Of all its files together, where `Done.locks` has `disk`."""
    readable: tuple[Path, ...] = field(default=())
    site_packages: bool = False
    """Whether it may import what is installed beside this package."""
    weak: bool = False
    """Run it also where nothing keeps the network away."""

    def run(self, source: str, stdin: bytes = b"") -> Done:
        """Run a program to its end. Blocks, for at most `wall_s` and a little.

        Raises `Void` when it could not be locked down or started.
        """
        with _room() as room:
            (room / "program.py").write_text(source, errors="replace")
            (room / "in").write_bytes(stdin)
            with (room / "in").open("rb") as given, (room / "out").open("wb") as said:
                with started(self, room, stdin=given.fileno(), stdout=said.fileno()) as inside:
                    status = inside.wait(self.wall_s)
            return Done(status, _head(room / "out"), inside.locks)


@contextmanager
def _room() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_OUTPUT_BYTES)


class Inside:
    """A program in its jail. Made by `started`, which also ends it."""

    def __init__(self, process: subprocess.Popen[bytes], told: TextIO) -> None:
        self.process = process
        self._told = told
        word, _, names = told.readline().strip().partition(" ")
        self.locks = frozenset(names.split())
        if word != "locks":
            raise Void(VoidReason.NO_JAIL)

    def wait(self, limit_s: float) -> int | None:
        """How it ended; None when it does not in time."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        word, _, status = self._told.readline().strip().partition(" ")
        return int(status) if word == "ended" else None


@contextmanager
def started(jail: Jail, room: Path, *, stdin: int, stdout: int) -> Iterator[Inside]:
    """Start `program.py` of a folder, in one below that is all that it may write to; in the end
    kill it with everything that it started. Raises `Void`."""
    (room / _WORK).mkdir()
    told, telling = os.pipe()
    with os.fdopen(told, "r") as hearing:
        try:
            process = _start(jail, room, telling, stdin, stdout)
        except OSError:
            raise Void(VoidReason.NO_JAIL) from None
        finally:
            os.close(telling)
        try:
            inside = Inside(process, hearing)
            if not (jail.weak or inside.locks & _OFF_THE_NETWORK):
                raise Void(VoidReason.NO_JAIL)
            yield inside
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(
    jail: Jail, room: Path, telling: int, stdin: int, stdout: int
) -> subprocess.Popen[bytes]:
    lock = [sys.executable, "-I", "-S", str(_INSIDE), str(telling), _settings(jail, room)]
    return subprocess.Popen(  # noqa: S603 - it exists to run that, locked down
        [*lock, *_command(jail, room)],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        cwd=room,
        env={},
        pass_fds=[telling],
        start_new_session=True,
    )


def _command(jail: Jail, room: Path) -> list[str]:
    alone = [] if jail.site_packages else ["-S"]
    return [sys.executable, "-I", "-B", *alone, str(room / "program.py")]


def _settings(jail: Jail, room: Path) -> str:
    python = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib")}
    return json.dumps(
        {
            "read": [*_SYSTEM, *sorted(python), *map(str, jail.readable), str(room)],
            "write": str(room / _WORK),
            "disk_bytes": jail.disk_bytes,
            "memory_bytes": jail.memory_bytes,
            "file_bytes": jail.file_bytes,
            "cpu_s": jail.cpu_s,
            "wall_s": math.ceil(jail.wall_s) + 5 if math.isfinite(jail.wall_s) else 0,
        }
    )
