"""Scanning in processes of their own, so that no text, however long, holds up the event loop.

Each process is asked one thing at a time over its standard input and output. One that dies is
replaced; one that overruns its time is killed and replaced. They hold no keys, inherit no
environment, and end when `serve` does, because their input ends.

A question is two frames, what is asked (`Question`) and the body; the answer is one. A frame is
its length as eight bytes, big end first, then JSON. See `worker.py` for the other side.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog

from conductor.core import Finding, Likelihood, Scan
from conductor.detect.profile import DEFAULT_PROFILE, Profile
from conductor.detect.spans import Span, Spans
from conductor.logs import error_name
from conductor.process.spawn import end, kill, spawn

READY = b"\x06"
"""What a process says once it has compiled its rules."""

_CHUNK = 256 << 10
_START_S = 30.0
_BACKOFF_S = (0.05, 0.5, 2.0, 5.0)
"""Pauses before a process that keeps dying is started again; the last one repeats."""

_GONE = (OSError, asyncio.IncompleteReadError, orjson.JSONDecodeError)
"""How it shows that the other side of a pipe has died."""

log = structlog.get_logger()


def unscanned(reason: str) -> Scan:
    """The scan of a body that was not read."""
    return Scan((), 0, (reason,))


class Unanswered(Exception):
    """No process has answered; `args` holds the reason, one of `scan.REASONS`."""


@dataclass(frozen=True)
class Question:
    """What a process is asked: to scan a body, or, with `types`, for spans in a list of texts."""

    profile: Profile
    types: tuple[str, ...] | None
    deadline: float
    """`time.monotonic` at which nobody waits any more; the clock is one for all processes."""

    def pack(self) -> bytes:
        """The question as it goes over the pipe."""
        return orjson.dumps((self.profile.encoded.decode(), self.types, self.deadline))

    @classmethod
    def unpack(cls, data: bytes) -> Question:
        """The question that `pack` wrote."""
        profile, types, deadline = orjson.loads(data)
        return cls(Profile.decode(profile), types and tuple(types), deadline)


class ScanPool:
    """`processes` scanners. `start` before use and `close` after."""

    def __init__(
        self, processes: int, max_text_bytes: int, names_model: Path | None = None
    ) -> None:
        self._processes = processes
        self._max_text_bytes = max_text_bytes
        self._names_model = names_model
        self._idle: asyncio.Queue[Process | None] = asyncio.Queue()
        self._alive: set[Process] = set()
        self._failing = 0
        self._keepers: list[asyncio.Task[None]] = []
        self._exchanges: set[asyncio.Task[bytes | None]] = set()

    @property
    def ready(self) -> bool:
        """Whether at least one process can be asked."""
        return bool(self._alive)

    async def start(self) -> None:
        """Start all processes; return when each is ready or has failed once."""
        tried = [asyncio.Event() for _ in range(self._processes)]
        self._keepers = [asyncio.create_task(self._keep(event)) for event in tried]
        await asyncio.gather(*(event.wait() for event in tried))

    async def close(self) -> None:
        """Kill all processes and wait for them. Scans in progress or waiting: `scanner-down`."""
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.cancel()
        self._idle.put_nowait(None)
        await asyncio.gather(*keepers, *self._exchanges, return_exceptions=True)

    async def scan(self, body: bytes, timeout_s: float, profile: Profile = DEFAULT_PROFILE) -> Scan:
        """Have `body`, a JSON text, scanned. Says why when it was not; never raises for that."""
        question = Question(profile, None, time.monotonic() + timeout_s)
        try:
            return unpack(await self._answer(question, body, timeout_s))
        except Unanswered as error:
            return unscanned(*error.args)

    async def spans(
        self, texts: list[str], types: frozenset[str], timeout_s: float, profile: Profile
    ) -> Spans:
        """Have the spans of `types` in `texts` found. Raises `Unanswered`."""
        question = Question(profile, tuple(sorted(types)), time.monotonic() + timeout_s)
        try:
            body = orjson.dumps(texts)
        except orjson.JSONEncodeError:
            raise Unanswered("not-json") from None
        return unpack_spans(await self._answer(question, body, timeout_s))

    async def _answer(self, question: Question, body: bytes, timeout_s: float) -> bytes:
        """Ask a process. Raises `Unanswered`.

        A process that dies on it is given a second chance in another. Cancelling the call leaves
        the process to finish, so that it is neither lost nor killed for a client that left.
        """
        head = question.pack()
        deadline = asyncio.get_running_loop().time() + timeout_s
        for _ in range(2):
            try:
                async with asyncio.timeout_at(deadline):
                    process = await self._take()
            except TimeoutError:
                raise Unanswered("timeout") from None
            if process is None:
                raise Unanswered("scanner-down")
            task = asyncio.create_task(self._exchange(process, head, body, deadline))
            self._exchanges.add(task)
            task.add_done_callback(self._exchanges.discard)
            answer = await asyncio.shield(task)
            if answer is not None:
                return answer
        raise Unanswered("scanner-died")

    async def _take(self) -> Process | None:
        """An idle process; None when there is none and starting any has failed."""
        while self._alive or self._failing < len(self._keepers):
            process = await self._idle.get()
            if process in self._alive and not _has_ended(process):
                return process
        self._idle.put_nowait(None)  # whoever waits too shall see the same
        return None

    async def _exchange(
        self, process: Process, head: bytes, body: bytes, deadline: float
    ) -> bytes | None:
        """Ask one process. None when it died; killed when it overran the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                answer = await _ask(process, head, body)
        except TimeoutError:
            self._discard(process)
            raise Unanswered("timeout") from None
        except _GONE:
            self._discard(process)
            return None
        self._idle.put_nowait(process)
        return answer

    def _discard(self, process: Process) -> None:
        self._alive.discard(process)
        kill(process)

    async def _keep(self, tried: asyncio.Event) -> None:
        """Keep one process alive, for as long as the pool is."""
        failures = 0
        while True:
            process = await self._spawn()
            tried.set()
            if process is None:
                self._failing += failures == 0
                await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                failures += 1
                continue
            self._failing -= failures > 0
            failures = 0
            self._alive.add(process)
            self._idle.put_nowait(process)
            try:
                await process.wait()
                log.warning("scanner_ended")
            finally:
                self._discard(process)
                await process.wait()

    async def _spawn(self) -> Process | None:
        """A process that has said it is ready, or None."""
        process, ready = None, False
        try:
            async with asyncio.timeout(_START_S):
                process = await _launch(self._max_text_bytes, self._names_model)
                assert process.stdout is not None
                ready = await process.stdout.readexactly(1) == READY
        except (*_GONE, TimeoutError) as error:
            log.error("scanner_not_started", error=error_name(error))
        finally:
            if process is not None and not ready:
                await end(process)
        return process if ready else None


async def _launch(max_text_bytes: int, names_model: Path | None) -> Process:
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": str(root), "PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    return await spawn(
        sys.executable,
        "-P",  # no module from the working directory
        "-m",
        "conductor.detect.worker",
        str(max_text_bytes),
        *([str(names_model)] if names_model else []),
        stdin=PIPE,
        stdout=PIPE,
        env=environment,
    )


async def _ask(process: Process, head: bytes, body: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    for frame in (head, body):
        process.stdin.write(len(frame).to_bytes(8, "big"))
        for start in range(0, len(frame), _CHUNK):
            process.stdin.write(frame[start : start + _CHUNK])
            await process.stdin.drain()
    size = int.from_bytes(await process.stdout.readexactly(8), "big")
    return await process.stdout.readexactly(size)


def pack(scan: Scan) -> bytes:
    """A scan as it goes over the pipe."""
    findings = [(f.detector, f.count, f.view, int(f.likelihood)) for f in scan.findings]
    return orjson.dumps((findings, scan.text_bytes, scan.unscanned))


def unpack(data: bytes) -> Scan:
    """The scan that `pack` wrote."""
    findings, text_bytes, reasons = orjson.loads(data)
    found = (Finding(name, n, view, Likelihood(likely)) for name, n, view, likely in findings)
    return Scan(tuple(found), text_bytes, tuple(reasons))


def pack_spans(spans: Spans) -> bytes:
    """Spans as they go over the pipe."""
    per_text = [
        [(span.start, span.end, span.detector, int(span.likelihood)) for span in own]
        for own in spans.per_text
    ]
    return orjson.dumps((per_text, spans.complete, spans.hidden))


def unpack_spans(data: bytes) -> Spans:
    """The spans that `pack_spans` wrote."""
    per_text, complete, hidden = orjson.loads(data)
    own = (
        tuple(Span(start, end, name, Likelihood(likely)) for start, end, name, likely in spans)
        for spans in per_text
    )
    return Spans(tuple(own), complete, hidden)


def _has_ended(process: Process) -> bool:
    """Whether it has, though the loop may not have heard: it then costs a body no chance."""
    try:
        state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return state is not None
