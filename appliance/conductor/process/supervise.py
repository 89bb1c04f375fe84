"""Supervision of child processes: start, watch, restart with a growing pause, stop in order.

Used by `conductor up` on a laptop; under systemd each process is a unit and none of this runs.

Children are in sessions of their own: Ctrl-C at the terminal is for the supervisor, which stops
them in order. One whose supervisor dies goes with it: the kernel kills it (PR_SET_PDEATHSIG),
since there is nobody left to see whether it heeds anything milder, and the next start must not
find it in its place.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from conductor.process.spawn import spawn

PARENT = "CONDUCTOR_PARENT"
"""Environment variable that tells a child whose child it must stay."""

_PR_SET_PDEATHSIG = 1
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_STEADY_S = 30.0
"""A child that ran this long starts again with the shortest pause."""

Report = Callable[[str, str], None]
"""Called with a child's name and what happened to it."""


@dataclass(frozen=True)
class Child:
    """One process to keep alive. `ready` is polled until true; `stop_s` bounds its farewell."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    ready: Callable[[], Awaitable[bool]]
    stop_s: float = 5.0


@dataclass
class Supervisor:
    """Keeps children alive until `stop`. `output` takes their standard error, None: inherit."""

    report: Report
    output: IO[bytes] | None = None
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    def start(self, child: Child) -> None:
        """Begin to keep `child` alive."""
        self._tasks[child.name] = asyncio.create_task(self._keep(child))

    async def ready(self, child: Child, limit_s: float) -> bool:
        """Wait until `child` says it is ready, at most `limit_s`."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if await child.ready():
                return True
            await asyncio.sleep(0.05)
        return False

    def pid(self, name: str) -> int | None:
        """Process id of a running child."""
        process = self._processes.get(name)
        return process.pid if process is not None and process.returncode is None else None

    async def stop(self, child: Child) -> None:
        """End `child`: SIGTERM, and SIGKILL when it does not heed it in time."""
        task = self._tasks.pop(child.name, None)
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        process = self._processes.pop(child.name, None)
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), child.stop_s)
        except TimeoutError:
            self.report(child.name, f"did not stop within {child.stop_s:g} s: killed")
            process.kill()
            await process.wait()

    async def _keep(self, child: Child) -> None:
        failures = 0
        while True:
            started_s = time.monotonic()
            ending = await self._run(child)
            failures = 0 if time.monotonic() - started_s > _STEADY_S else failures + 1
            pause_s = _PAUSES_S[min(max(failures, 1), len(_PAUSES_S)) - 1]
            self.report(child.name, f"{ending}; again in {pause_s:g} s")
            await asyncio.sleep(pause_s)

    async def _run(self, child: Child) -> str:
        """One life of `child`; returns how it ended. A machine that has no process left to give
        is no reason to give up."""
        try:
            process = await spawn(
                *child.argv,
                env={**child.env, PARENT: str(os.getpid())},
                stdin=asyncio.subprocess.DEVNULL,
                stderr=self.output,
                stdout=self.output,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot be started ({error.strerror})"
        self._processes[child.name] = process
        self.report(child.name, f"started, pid {process.pid}")
        return f"ended ({_ending(await process.wait())})"


def stay_with_parent() -> None:
    """In a supervised child: die with the supervisor. Without one: do nothing."""
    parent = os.environ.pop(PARENT, None)
    if parent is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the kernel knew
        sys.exit(0)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
