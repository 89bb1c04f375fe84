"""Supervision of processes: kept alive, stopped for sure, told nothing that is not theirs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import psutil
import pytest

from conductor.process import supervise
from conductor.process.supervise import Child, Supervisor
from support.processes import dead
from support.soon import SOON_S, until

FOREVER = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); {FOREVER}"
POLITE = (
    "import pathlib, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1]).touch(), sys.exit(0)))\n"
    "print(flush=True)\n"
    "time.sleep(600)"
)


async def at_once() -> bool:
    return True


async def never() -> bool:
    return False


def child(code: str, *arguments: object, name: str = "child", stop_s: float = SOON_S) -> Child:
    argv = [sys.executable, "-S", "-c", code, *map(str, arguments)]
    return Child(name, argv, {"PATH": os.defpath}, at_once, stop_s)


@dataclass
class Told:
    """What a supervisor reported, in order."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, name: str, what: str) -> None:
        self.lines.append((name, what))

    def all(self, pattern: str) -> list[str]:
        """The first group of every line that matches."""
        found = (re.search(pattern, what) for _, what in self.lines)
        return [match[1] for match in found if match]


@contextmanager
def nowhere() -> Iterator[IO[bytes]]:
    with Path(os.devnull).open("wb") as output:
        yield output


@asynccontextmanager
async def keeping(*children: Child) -> AsyncIterator[tuple[Supervisor, Told]]:
    """A supervisor at work; all its children are stopped at the end."""
    told = Told()
    with nowhere() as output:
        supervisor = Supervisor(told, output)
        for one in children:
            supervisor.start(one)
        try:
            yield supervisor, told
        finally:
            await asyncio.gather(*(supervisor.stop(one) for one in children))


async def started(supervisor: Supervisor, name: str = "child", not_pid: int | None = None) -> int:
    """Wait for a (new) process and give its id."""
    await until(lambda: supervisor.pid(name) not in (None, not_pid))
    pid = supervisor.pid(name)
    assert pid is not None
    return pid


def gone(pid: int) -> bool:
    """No such process, or one that only waits to be taken note of."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_child_that_is_killed_is_started_again() -> None:
    one = child(FOREVER)
    async with keeping(one) as (supervisor, told):
        first = await started(supervisor)
        os.kill(first, signal.SIGKILL)
        second = await started(supervisor, not_pid=first)
        assert not gone(second)
        assert told.all(r"ended \((.*)\); again") == ["signal 9"]
    assert gone(second)


async def test_a_child_that_ends_at_once_is_started_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "_PAUSES_S", (0.01, 0.02, 0.03))
    async with keeping(child("raise SystemExit(3)")) as (_, told):
        await until(lambda: len(told.all(r"again in (.*) s")) >= 5)
    assert told.all(r"again in (.*) s")[:5] == ["0.01", "0.02", "0.03", "0.03", "0.03"]
    assert set(told.all(r"ended \((.*)\)")) == {"exit code 3"}


async def test_a_child_that_ran_long_starts_again_with_the_shortest_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "_PAUSES_S", (0.01, 0.02, 0.03))
    monkeypatch.setattr(supervise, "_STEADY_S", 0.0)
    async with keeping(child("pass")) as (_, told):
        await until(lambda: len(told.all(r"again in (.*) s")) >= 3)
    assert set(told.all(r"again in (.*) s")) == {"0.01"}


async def test_a_program_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervise, "_PAUSES_S", (0.01,))
    program = tmp_path / "program"
    async with keeping(replace(child(""), argv=[str(program)])) as (supervisor, told):
        await until(lambda: len(told.all("(cannot be started)")) >= 2)
        program.write_text(f"#!/bin/sh\nexec {sys.executable} -S -c '{FOREVER}'\n")
        program.chmod(0o700)
        await started(supervisor)


async def test_a_child_is_asked_to_stop_before_it_is_killed(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    told = Told()
    read, write = os.pipe()
    with os.fdopen(read, "rb") as ready, os.fdopen(write, "wb") as output:
        supervisor = Supervisor(told, output)
        one = child(POLITE, heard)
        supervisor.start(one)
        pid = await started(supervisor)
        await asyncio.to_thread(ready.readline)
        await supervisor.stop(one)
    assert heard.exists()
    assert gone(pid)
    assert not told.all("(killed)")


async def test_a_child_that_ignores_the_request_to_stop_is_killed() -> None:
    told = Told()
    read, write = os.pipe()
    with os.fdopen(read, "rb") as ready, os.fdopen(write, "wb") as output:
        supervisor = Supervisor(told, output)
        one = child(DEAF, stop_s=0.2)
        supervisor.start(one)
        pid = await started(supervisor)
        await asyncio.to_thread(ready.readline)
        await supervisor.stop(one)
    assert gone(pid)
    assert told.all("did not stop within (.*) s: killed") == ["0.2"]


async def test_stopping_in_the_middle_of_a_start_leaves_no_process() -> None:
    before = set(psutil.Process().children())
    told = Told()
    with nowhere() as output:
        supervisor = Supervisor(told, output)
        for turns in range(6):
            one = child(FOREVER)
            supervisor.start(one)
            for _ in range(turns):
                await asyncio.sleep(0)
            await supervisor.stop(one)
            assert set(psutil.Process().children()) <= before


async def test_stopping_between_two_lives_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_PAUSES_S", (600.0,))
    one = child("pass")
    others = asyncio.all_tasks()
    async with keeping(one) as (supervisor, told):
        await until(lambda: told.all("(again)"))
        await supervisor.stop(one)
        assert asyncio.all_tasks() == others, "something is left that could start it again"
        assert len(told.all(r"(started)")) == 1
        assert supervisor.pid("child") is None
        await supervisor.stop(one)  # harmless


async def test_readiness_is_asked_for_until_it_comes_or_the_time_is_over() -> None:
    asked = 0

    async def third_time() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    supervisor = Supervisor(Told())
    ready: Callable[[], Awaitable[bool]] = third_time
    assert await supervisor.ready(replace(child(""), ready=ready), SOON_S)
    assert not await supervisor.ready(replace(child(""), ready=never), 0.1)


async def test_a_child_gets_exactly_its_own_environment_and_a_session_of_its_own() -> None:
    os.environ["NOT_FOR_CHILDREN"] = "a vendor's key"
    try:
        one = replace(child(FOREVER), env={"OWN": "yes"})
        async with keeping(one) as (supervisor, _):
            pid = await started(supervisor)
            # Until it has been executed, the new process still shows what it was forked from.
            await until(lambda: psutil.Process(pid).cmdline()[:1] == [sys.executable])
            seen = psutil.Process(pid).environ()
            assert seen == {"OWN": "yes", supervise.PARENT: str(os.getpid())}
            assert os.getsid(pid) == pid, "Ctrl-C at the terminal would reach it"
    finally:
        del os.environ["NOT_FOR_CHILDREN"]


PARENT_OF_ONE = """
import os, subprocess, sys
code = "from conductor.process.supervise import stay_with_parent as stay; stay(); "
child = subprocess.Popen(
    [sys.executable, "-c", code + sys.argv[1]],
    env={**os.environ, "CONDUCTOR_PARENT": str(os.getpid())}, stdout=subprocess.PIPE,
)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.parametrize(
    "code", [f"print(flush=True); {FOREVER}", DEAF], ids=["willing", "deaf to SIGTERM"]
)
def test_a_child_whose_supervisor_is_killed_dies_with_it(code: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT_OF_ONE, code], env=environment, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert child.is_running()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert dead([child], SOON_S)


def test_a_child_whose_supervisor_is_already_dead_does_not_begin() -> None:
    code = (
        "from conductor.process.supervise import stay_with_parent as stay; stay(); print('began')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment[supervise.PARENT] = "1"  # any process but its parent
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        timeout=SOON_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"")


def test_without_a_supervisor_nothing_is_asked_of_the_kernel() -> None:
    supervise.stay_with_parent()
    assert supervise.PARENT not in os.environ
