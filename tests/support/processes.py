"""`conductor up` and its processes for real, to be killed by the test that started them."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from support.clients import http_client
from support.configs import KEY, Tree, write_site
from support.soon import SOON_S, until, until_now

VENDOR_KEY = "vk-simulated-0123456789"
START_S = 90.0
"""For a whole start, or a part of it, on a machine with much else to do."""


def command(*words: str) -> list[str]:
    """A `conductor` command line of the code under test."""
    return [sys.executable, "-m", "conductor", *words]


def environment(**more: str) -> dict[str, str]:
    """What such a process needs to run, and nothing of the test's own environment."""
    paths = os.pathsep.join(filter(None, sys.path))
    return {"PATH": os.environ["PATH"], "PYTHONPATH": paths, **more}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fixed_ports() -> Tree:
    """For `api:` in appliance.yaml: two ports that are free now."""
    return {"port": free_port(), "admin_port": free_port()}


def site_of(directory: Path, workers: Sequence[Tree], **appliance: Any) -> Path:
    """A site on fixed ports."""
    changes = {"log": {"format": "json"}, **appliance}
    changes["api"] = {**fixed_ports(), "drain_s": 3.0, **changes.get("api", {})}
    return write_site(directory, workers=workers, appliance=changes)


class Up:
    """A running `conductor up`. `lines` is what it has said so far."""

    def __init__(self, directory: Path, **env: str) -> None:
        self.directory = directory
        self.log = directory / "up.log"
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command("up", "--config", str(directory), "--log-file", str(self.log)),
            env=environment(PYTHONUNBUFFERED="1", **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def said(self, pattern: str) -> list[str]:
        """The lines that match."""
        return [line for line in self.lines if re.search(pattern, line)]

    def wait_for(self, pattern: str) -> str:
        """Block until a line matches, or until it can say no more."""
        until_now(lambda: self.said(pattern) or not self._reader.is_alive(), START_S)
        assert self.said(pattern), f"never said {pattern}: {self.lines}"
        return self.said(pattern)[0]

    def pid(self, name: str) -> int:
        """The process id of the child of that name, the latest one."""
        return int(self.said(rf"^{re.escape(name)} +started, pid \d+")[-1].rpartition(" ")[2])

    def family(self) -> list[psutil.Process]:
        """Every process below it."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self, name: str) -> int:
        """SIGKILL to a child; returns the id it had."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    async def again(self, name: str, not_pid: int) -> int:
        """Wait until a child has been started anew; returns its new id."""
        await until(lambda: self.pid(name) != not_pid)
        return self.pid(name)

    def end(self, signal_number: int = signal.SIGTERM) -> int:
        """Ask it to stop; returns its exit code."""
        self.process.send_signal(signal_number)
        return self.process.wait(SOON_S)

    def close(self) -> None:
        """For every way out of a test: nothing of it is left running."""
        family = self.family() if self.process.poll() is None else []
        self.process.kill()
        self.process.wait()
        dead(family, SOON_S)
        self._reader.join(SOON_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def up(directory: Path, **env: str) -> Iterator[Up]:
    """`conductor up`, ready."""
    running = Up(directory, **env)
    try:
        running.wait_for("^ready: ")
        yield running
    finally:
        running.close()


def dead(processes: Sequence[psutil.Process], limit_s: float) -> bool:
    """Whether all of them end in time (or are no more than entries in a table)."""
    with suppress(AssertionError):
        until_now(lambda: all(map(_ended, processes)), limit_s)
    return all(map(_ended, processes))


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Api:
    """Both listeners of a site on fixed ports, from outside."""

    def __init__(self, port: int, admin_port: int) -> None:
        self.port = port
        headers = {"Authorization": f"Bearer {KEY}"}
        self._api = http_client(f"http://127.0.0.1:{port}", headers=headers)
        self._admin = http_client(f"http://127.0.0.1:{admin_port}")

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._api.aclose()
        await self._admin.aclose()

    async def ask(self, model: str, **more: Any) -> httpx.Response:
        messages = [{"role": "user", "content": "What is the capital of Italy?"}]
        return await self.post({"model": model, "messages": messages, **more})

    async def post(self, body: Tree) -> httpx.Response:
        """One chat request."""
        return await self._api.post("/v1/chat/completions", json=body)

    async def get(self, path: str) -> httpx.Response:
        return await self._admin.get(path)

    async def status(self) -> Any:
        return (await self.get("/status")).json()

    async def worker(self, name: str) -> Any:
        return next(w for w in (await self.status())["workers"] if w["id"] == name)

    async def until(self, condition: Callable[[], Any], limit_s: float = START_S) -> None:
        """Wait until the coroutine function `condition` gives true; a closed port is a no."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while True:
            try:
                if await condition():
                    return
            except httpx.TransportError:
                pass
            assert loop.time() < deadline, "what the test waits for did not happen"
            await asyncio.sleep(0.05)

    async def answers(self, model: str, **more: Any) -> None:
        """Ask until the answer is a 200."""

        async def fine() -> bool:
            return (await self.ask(model, **more)).status_code == 200

        await self.until(fine)


def limit_file_size(pid: int, size: int = resource.RLIM_INFINITY) -> None:
    """Let a process write no file beyond `size` bytes: to it, the disk is full."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
