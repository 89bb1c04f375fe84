"""Planners for tests: engines that misbehave, a server that says whatever it is told, a process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from conductor.core import PlanRequest
from conductor.plan.language import parse
from conductor.planner.client import PlannerClient, PlannerState
from conductor.planner.engine import Insight, Planned
from conductor.process.unixsocket import listening
from support.soon import SOON_S

ROOT = Path(__file__).parents[2]
PLANNER = """
import pathlib, sys
from conductor.planner.server import run_planner
from conductor.settings import PlannerConfig
socket, engine, *paths = sys.argv[1:]
bundle, key, models = map(pathlib.Path, paths or ("", "", ""))
own = bundle != pathlib.Path()
settings = PlannerConfig(engine, bundle, (key,)) if own else PlannerConfig(engine)
run_planner(pathlib.Path(socket), settings, models)
"""


def as_new(client: PlannerClient) -> None:
    """Have the client forget that nobody was there when it looked: the next question is asked."""
    client._become(PlannerState.UNKNOWN)


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A folder whose path is short enough for Unix sockets."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class FakeEngine:
    """An engine that answers `text`, in whatever round, after `gate` opens if there is one, or
    raises `error`."""

    text: str = "0 q -\n"
    name: str = "fake"
    look: bool = False
    insight: Insight | None = None
    error: Exception | None = None
    is_ready: bool = True
    gate: asyncio.Event | None = None
    running: int = 0
    most_running: int = 0
    cancelled: int = 0
    asked: list[PlanRequest] = field(default_factory=list)

    async def ready(self) -> bool:
        return self.is_ready

    async def plan(self, request: PlanRequest) -> Planned:
        self.asked.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        plan = parse(self.text, len(request.heard))
        return Planned(plan, self.name, look=self.look, insight=self.insight)


@dataclass
class FakePlanner:
    """A server that answers every `/v1/plan` with the raw bytes `reply`; None: it hangs.

    `/readyz` is answered with `ready`, so that a planner can claim to be fine and not be; None:
    that hangs too.
    """

    reply: bytes | None
    ready: int | None = 200
    plans_asked: int = 0
    connections: int = 0

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await self._answer_all(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        with listening(path) as listener:
            server = await asyncio.start_unix_server(connected, sock=listener)
            try:
                yield
            finally:
                server.close()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /readyz"):
                if self.ready is not None:
                    writer.write(http(b"{}", self.ready))
                continue
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            self.plans_asked += 1
            if self.reply is None:
                await asyncio.Event().wait()
            else:
                writer.write(self.reply)
                if self.reply.endswith(b"<close>"):
                    return


def http(body: bytes, status: int = 200) -> bytes:
    """A whole HTTP answer."""
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@asynccontextmanager
async def planner_process(socket: Path, *settings: str) -> AsyncIterator[int]:
    """A real planner process that is ready; its pid. Killed at the end if it still runs.

    `settings`: the engine's name, and for `pocket` bundle and key file, both empty for the shipped
    one, and the folder of models.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PLANNER, str(socket), *(settings or ("default",)),
        env={**os.environ, "PYTHONPATH": str(ROOT / "appliance")},
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await until_ready(socket)
        yield process.pid
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def until_ready(socket: Path) -> None:
    """Wait for a planner to be ready."""
    async with asyncio.timeout(SOON_S):
        while await get(socket, "/readyz") != 200:  # noqa: ASYNC110  nothing else tells
            await asyncio.sleep(0.02)


async def get(socket: Path, path: str) -> int | None:
    """The status; None when nobody listens."""
    try:
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
            async with session.get(f"http://planner{path}") as response:
                return response.status
    except aiohttp.ClientConnectionError:
        return None
