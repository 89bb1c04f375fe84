"""A simulated OpenAI-compatible vendor: for the demo, the benchmark and the tests.

An HTTP/1.1 server on raw sockets (loopback TCP or Unix) that keeps every byte it receives, so that
a test can say what did *not* arrive, and that notices when a caller hangs up. It serves as a fake
local worker too. Which model does what stands in `behaviours.py`.

Left out on purpose: TLS, chunked request bodies, and any check of the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import orjson

from conductor.simulated.acts import Cut, Send, Wait
from conductor.simulated.behaviours import respond

_MAX_HEAD_BYTES = 64 * 1024


@dataclass
class Received:
    """One request as it came, and what became of it."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    """In the order and spelling received."""
    body: bytes
    answered: bool = False
    """The vendor has said all it wanted to, which includes cutting the connection itself."""
    aborted_at: float | None = None
    """When the caller hung up before that: the event loop's time, in seconds."""

    @property
    def aborted(self) -> bool:
        return self.aborted_at is not None

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its case."""
        return next((v for k, v in self.headers if k.lower() == name.lower()), None)


@dataclass
class Connection:
    """Every byte of one connection, parsed or not."""

    received: bytearray = field(default_factory=bytearray)
    open: bool = True


class SimulatedVendor:
    """Starts listening with `start_tcp` or `start_unix`; both at once are fine.

    With `keep=False` nothing is recorded, for long benchmarks; `on_request` still sees each one.
    """

    def __init__(
        self, *, keep: bool = True, on_request: Callable[[Received], None] | None = None
    ) -> None:
        self.requests: list[Received] = []
        self.connections: list[Connection] = []
        self.keep = keep
        self.on_request = on_request
        self._servers: list[asyncio.Server] = []
        self._protocols: set[_Protocol] = set()

    @property
    def received(self) -> bytes:
        """Every byte of every connection, in the order in which the connections were opened."""
        return b"".join(connection.received for connection in self.connections)

    @property
    def open_connections(self) -> int:
        return len(self._protocols)

    async def start_tcp(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen on loopback; the port that was taken."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Protocol(self), host, port, backlog=2048)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def start_unix(self, path: Path) -> None:
        """Listen on a Unix socket."""
        loop = asyncio.get_running_loop()
        self._servers.append(
            await loop.create_unix_server(lambda: _Protocol(self), str(path), backlog=2048)
        )

    async def close(self) -> None:
        """Stop listening and hang up on everybody."""
        for server in self._servers:
            server.close()
        await asyncio.gather(*(protocol.hang_up() for protocol in list(self._protocols)))
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    async def __aenter__(self) -> SimulatedVendor:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _Protocol(asyncio.Protocol):
    """One connection: requests are answered one after the other, in order."""

    _transport: asyncio.Transport

    def __init__(self, vendor: SimulatedVendor) -> None:
        self._vendor = vendor
        self._log = Connection()
        self._buffer = bytearray()
        self._playing: asyncio.Task[None] | None = None
        self._request: Received | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._vendor._protocols.add(self)
        if self._vendor.keep:
            self._vendor.connections.append(self._log)

    def data_received(self, data: bytes) -> None:
        if self._vendor.keep:
            self._log.received += data
        self._buffer += data
        self._next()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._log.open = False
        self._gone.set()
        self._vendor._protocols.discard(self)
        if self._playing is not None:
            self._playing.cancel()
        if self._request is not None and not self._request.answered:
            self._request.aborted_at = asyncio.get_running_loop().time()

    # -- one request at a time

    async def hang_up(self) -> None:
        """The vendor's own doing: nothing counts as aborted by the caller."""
        if self._request is not None:
            self._request.answered = True
        self._transport.abort()
        await self._gone.wait()

    def _next(self) -> None:
        if self._playing is not None:
            return
        request = self._take()
        if request is None:
            return
        self._request = request
        if self._vendor.keep:
            self._vendor.requests.append(request)
        if self._vendor.on_request is not None:
            self._vendor.on_request(request)
        self._playing = asyncio.get_running_loop().create_task(self._play(request))

    def _take(self) -> Received | None:
        """Cut one whole request off the buffer, or wait for more."""
        end = self._buffer.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
        if end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                self._transport.abort()
            return None
        line, *rows = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        pairs = (row.partition(":") for row in rows)
        headers = tuple((name, value.strip()) for name, _, value in pairs)
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        method, _, rest = line.partition(" ")
        total = end + 4 + (int(lengths[0]) if lengths and lengths[0].isdigit() else 0)
        if len(self._buffer) < total:
            return None
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        return Received(method, rest.rpartition(" ")[0], headers, body)

    async def _play(self, request: Received) -> None:
        for act in respond(request.method, request.path, request.body):
            match act:
                case Send(data):
                    self._transport.write(data)
                    await self._writable.wait()
                case Wait(seconds):
                    await asyncio.sleep(seconds)
                case Cut():
                    request.answered = True
                    self._transport.close()
                    return
        request.answered = True
        self._playing = None
        if (request.header("connection") or "").lower() == "close":
            self._transport.close()
        else:
            self._next()


async def run_vendor(host: str, port: int, record_path: Path) -> None:
    """Serve until cancelled, appending the body of each POST to `record_path` as one JSON line."""
    with record_path.open("ab", buffering=0) as record:

        def write(request: Received) -> None:
            if request.method == "POST":
                record.write(_one_line(request.body))

        async with SimulatedVendor(keep=False, on_request=write) as vendor:
            await vendor.start_tcp(host, port)
            await asyncio.Event().wait()


def _one_line(body: bytes) -> bytes:
    """The body re-encoded, or as a JSON string when it is no JSON."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = body.decode("utf-8", "replace")
    return orjson.dumps(value) + b"\n"
