"""The load: requests over kept connections, from a process of its own.

    python -m bench.load        a job a line in, its measurements a line out, both JSON

It does as little as it can for a request, so that the machine's time goes to what is measured.
Left out: everything that no answer here needs, such as trailers, redirects or a second try.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import cast

import orjson
import uvloop

MARK = b"########"
"""In a request: replaced by a running number, because a body that came before is not scanned."""


@dataclass(frozen=True)
class Target:
    """Where to send what. `address`: `host:port`, or the path of a Unix socket; `request`: the
    path of a file that holds a whole HTTP request."""

    address: str
    request: str


@dataclass(frozen=True)
class Job:
    """`connections` at a time go through all targets in turn, `rounds` times or for `limit_s`.

    They start within `over_s` and pause `pause_s` after each answer.
    """

    targets: list[Target]
    connections: int
    rounds: int
    limit_s: float = 60.0
    over_s: float = 0.0
    pause_s: float = 0.0


@dataclass(frozen=True)
class Result:
    """Of each target: milliseconds to the first byte of each body. Of all: how long it took."""

    first_byte_ms: list[list[float]]
    wall_s: float

    @property
    def answers(self) -> int:
        return sum(map(len, self.first_byte_ms))


class Peer(asyncio.Protocol):
    """One kept connection, one request at a time."""

    def __init__(self) -> None:
        self._done: asyncio.Future[None] | None = None
        self._answer = bytearray()
        self._first_s = 0.0
        self._length = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes) -> float:
        """Seconds to the first byte of the answer's body. Raises when it is no whole 200."""
        self._done = asyncio.get_running_loop().create_future()
        self._answer.clear()
        self._first_s = 0.0
        start_s = time.perf_counter()
        self._transport.write(request)
        await self._done
        if not self._answer.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(bytes(self._answer[:500]).decode("latin-1"))
        return self._first_s - start_s

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._first_s and not self._begun():
            return
        if self._length:
            whole = len(self._answer) >= self._length
        else:
            whole = self._answer.endswith(b"\r\n0\r\n\r\n")
        if whole and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("closed within an answer"))

    def _begun(self) -> bool:
        """Whether the body has; notes when, and where it will end (0: by its chunks)."""
        end = self._answer.find(b"\r\n\r\n") + 4
        if end == 3 or len(self._answer) == end:
            return False
        self._first_s = time.perf_counter()
        _, found, rest = bytes(self._answer[:end]).lower().partition(b"\r\ncontent-length:")
        self._length = end + int(rest.partition(b"\r\n")[0]) if found else 0
        return True


async def run(job: Job, requests: Sequence[bytes], numbers: Iterator[int]) -> Result:
    """Send it all. `requests` go to the targets, with the next of `numbers` in each."""
    measured: list[list[float]] = [[] for _ in requests]
    peers = [
        [await _connect(target.address) for target in job.targets] for _ in range(job.connections)
    ]
    start_s = time.perf_counter()

    async def one(place: int) -> None:
        await asyncio.sleep(job.over_s * place / job.connections)
        for _ in range(job.rounds):
            for peer, request, taken in zip(peers[place], requests, measured, strict=True):
                number = b"%08d" % next(numbers)
                taken.append(1000 * await peer.ask(request.replace(MARK, number, 1)))
                if job.pause_s:
                    await asyncio.sleep(job.pause_s)
            if time.perf_counter() - start_s > job.limit_s:
                return

    await asyncio.gather(*(one(place) for place in range(job.connections)))
    return Result(measured, time.perf_counter() - start_s)


async def _connect(address: str) -> Peer:
    loop = asyncio.get_running_loop()
    if address.startswith("/"):
        return (await loop.create_unix_connection(Peer, address))[1]
    host, _, port = address.partition(":")
    return (await loop.create_connection(Peer, host, int(port)))[1]


def main() -> None:
    numbers = count()
    for line in sys.stdin.buffer:
        given = orjson.loads(line)
        job = Job(**{**given, "targets": [Target(**target) for target in given["targets"]]})
        requests = [Path(target.request).read_bytes() for target in job.targets]
        result = uvloop.run(run(job, requests, numbers))
        print(orjson.dumps(asdict(result)).decode(), flush=True)


if __name__ == "__main__":
    main()
