"""A thousand streams at once through one `serve` process: no error, flat memory, no file left."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil
import pytest

from conductor.simulated.acts import Send, answer
from conductor.simulated.answers import read_question
from support.appliance import short_directory
from support.configs import KEY, local_worker
from support.processes import START_S, Api, command, environment, fixed_ports, write_site
from support.soon import until

pytestmark = pytest.mark.timeout(300)
"""It starts whole processes, which a busy machine may give little time."""

STREAMS = 1000
FILES = 4 * STREAMS
"""This process holds both ends: the clients, and the worker that serve calls."""
MAX_GROWTH_BYTES = 4 * 2**20
"""Of serve's resident memory over a round after the first: 4 KiB a stream would already show."""


class Worker:
    """Answers nobody until a whole round of streams is waiting, then all of them."""

    def __init__(self) -> None:
        self.connections = 0
        self._waiting = 0
        self._all_here = asyncio.Event()

    @asynccontextmanager
    async def listening(self, socket: Path) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._connected, socket, backlog=STREAMS)
        try:
            yield
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await _until_blank_line(reader):
                length = re.search(rb"content-length: (\d+)", head.lower())
                question = read_question(await reader.readexactly(int(length[1] if length else 0)))
                assert question is not None
                await self._round()
                for act in answer(question, ["one ", "word ", "after ", "another"]):
                    assert isinstance(act, Send)
                    writer.write(act.data)
                await writer.drain()
        finally:
            writer.close()
            self.connections -= 1

    async def _round(self) -> None:
        self._waiting += 1
        if self._waiting < STREAMS:
            await self._all_here.wait()
            return
        self._waiting = 0
        self._all_here.set()
        self._all_here = asyncio.Event()


async def _until_blank_line(reader: asyncio.StreamReader) -> bytes:
    """A request's head; nothing at the end of the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


@pytest.fixture
def files() -> Iterator[None]:
    """Room for all the sockets of this test, for as long as it runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < FILES:
        pytest.skip(f"the hard limit on open files is {hard}, this takes {FILES}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def serve(directory: Path) -> Iterator[psutil.Process]:
    """`conductor serve`, started with the limit of a common shell: 1024 files."""
    with (directory / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            command("serve", "--config", str(directory)),
            env=environment(),
            stdout=log,
            stderr=log,
            preexec_fn=_limit_like_a_shell,
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        assert process.wait(START_S) == 0


def _limit_like_a_shell() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))


@asynccontextmanager
async def running() -> AsyncIterator[tuple[psutil.Process, Api, Worker]]:
    with short_directory() as directory:
        socket, ports = directory / "w.sock", fixed_ports()
        places = {"max_in_flight": STREAMS, "queue_wait_s": 60.0}
        keys = [{"id": "app", "secret": "file:app.key", "max_in_flight": STREAMS}]
        changes = {"api": {**ports, "drain_s": 5.0}, "keys": keys, "mode": "local-only"}
        for path in ("a", "r", "s"):
            (directory / path).mkdir()
        pool = [local_worker("local-a", unix=socket, limits=places)]
        write_site(directory, workers=pool, appliance=changes)
        worker = Worker()
        async with worker.listening(socket), Api(**ports) as api:
            with serve(directory) as process:
                await api.until(lambda: _ready(api))
                yield process, api, worker


async def _ready(api: Api) -> bool:
    return (await api.get("/readyz")).status_code == 200


async def one_stream(port: int, number: int) -> bytes:
    """Ask, and read to the end of the connection."""
    messages = [{"role": "user", "content": f"Question {number}"}]
    body = json.dumps({"model": "conductor", "stream": True, "messages": messages}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: box\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    try:
        return await reader.read()
    finally:
        writer.close()


async def all_at_once(api: Api) -> None:
    """One round: every stream of it ends well. None does before all of them are open."""
    async with asyncio.timeout(START_S):
        answers = await asyncio.gather(*(one_stream(api.port, i) for i in range(STREAMS)))
    wrong = [a[:300] for a in answers if b" 200 OK" not in a[:20] or b"data: [DONE]" not in a]
    assert not wrong, f"{len(wrong)} of {STREAMS} failed, the first with {wrong[0]!r}"


async def idle_files(process: psutil.Process, worker: Worker) -> int:
    """Files that serve has open once the kept connections to its worker have expired."""
    await until(lambda: worker.connections == 0)
    await asyncio.sleep(0.2)
    return process.num_fds()


async def test_a_thousand_streams_leave_memory_flat_and_no_file_open(files: None) -> None:
    async with running() as (process, api, worker):
        before = await idle_files(process, worker)
        sizes = []
        for _ in range(2):
            await all_at_once(api)
            sizes.append(process.memory_info().rss)
        status = await api.worker("local-a")
        assert (status["in_flight"], status["queued"], status["state"]) == (0, 0, "closed")
        metrics = (await api.get("/metrics")).text
        done = 'conductor_requests_total{model="conductor",outcome="completed",status="200"}'
        assert f"{done} {2.0 * STREAMS}" in metrics
        assert sizes[1] - sizes[0] < MAX_GROWTH_BYTES, sizes
        await until(lambda: worker.connections == 0 and process.num_fds() <= before)
