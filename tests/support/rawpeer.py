"""A peer that speaks raw bytes, for what no proper server would do."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from conductor.core import (
    Call,
    Card,
    Destination,
    RemoteEndpoint,
    SecretRef,
    TcpEndpoint,
    UnixEndpoint,
    Worker,
    WorkerLimits,
)
from conductor.labels import Clearance

OK = b"HTTP/1.1 200 OK\r\n"
JSON = OK + b"Content-Type: application/json\r\n"
SSE = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}'
CHUNK = b'{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}'
LAST = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
BODY = b'{"messages":[{"role":"user","content":"hello"}]}'

Script = Callable[["Peer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def plain(body: bytes = ANSWER, head: bytes = JSON) -> bytes:
    """A whole response with a content length."""
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def status(line: str, body: bytes = b"", headers: str = "") -> bytes:
    """A response with another status; `headers` are lines that each end in CRLF."""
    return plain(body, f"HTTP/1.1 {line}\r\n{headers}".encode())


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: bytes) -> bytes:
    return chunked(b"data: " + data + b"\n\n")


STREAM = SSE + event(CHUNK) + event(LAST) + event(b"[DONE]") + chunked(b"")


@dataclass
class Peer:
    """What a scripted server saw. Its address is `endpoint`."""

    script: Script
    endpoint: TcpEndpoint | UnixEndpoint
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """A whole request has come."""
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    """A client closed its connection."""

    async def read_request(self, reader: asyncio.StreamReader) -> None:
        """Raises `IncompleteReadError` when the client has closed instead."""
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-le")]
        body = await reader.readexactly(int(lengths[0].split(b":")[1]))
        self.heads.append(head)
        self.bodies.append(body)
        self.asked.set()

    async def wait_hang_up(self, reader: asyncio.StreamReader) -> None:
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
        self.hung_up.set()

    def headers(self, index: int = -1) -> dict[str, str]:
        lines = self.heads[index].decode().split("\r\n")[1:-2]
        return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.script(self, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.transport.abort()


def answering(*responses: bytes) -> Script:
    """Give one response to each request, the last one again and again; keep the connection."""
    waiting = list(responses)

    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await peer.read_request(reader)
            writer.write(waiting.pop(0) if len(waiting) > 1 else waiting[0])
            await writer.drain()

    return script


def then_close(*pieces: bytes) -> Script:
    """Answer one request with pieces, written apart, and close."""

    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await peer.read_request(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()

    return script


def then_silence(*pieces: bytes) -> Script:
    """Answer one request with pieces, and then say nothing until the client hangs up."""

    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await peer.read_request(reader)
        for piece in pieces:
            writer.write(piece)
        await peer.wait_hang_up(reader)

    return script


@asynccontextmanager
async def serving(script: Script, *, unix: bool = False, backlog: int = 100) -> AsyncIterator[Peer]:
    """Run a scripted peer on loopback or on a Unix socket."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-"))
    peer = Peer(script, UnixEndpoint(folder / "w.sock"))
    if unix:
        server = await asyncio.start_unix_server(peer.serve, folder / "w.sock", backlog=backlog)
    else:
        server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, backlog=backlog)
        peer.endpoint = TcpEndpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield peer
    finally:
        server.close()
        shutil.rmtree(folder)


def local_worker(
    endpoint: TcpEndpoint | UnixEndpoint, worker_id: str = "w", **limits: float
) -> Worker:
    return _worker("local", endpoint, worker_id, limits)


def remote_worker(worker_id: str = "far", **limits: float) -> Worker:
    endpoint = RemoteEndpoint("openai", "https://vendor.invalid/v1", SecretRef("env", "NOT_SET"))
    return _worker("remote", endpoint, worker_id, limits)


def _worker(kind, endpoint, worker_id, limits) -> Worker:  # type: ignore[no-untyped-def]
    destination = Destination(f"{kind}-place", kind, Clearance(0), {"kind": kind}, "test:1:1")
    return Worker(
        id=worker_id,
        model="m",
        destination=destination,
        clearance=destination.clearance,
        endpoint=endpoint,
        card=Card({"general": 0.5}, 10.0, "declared"),
        limits=WorkerLimits(**limits),
    )


def request(*, stream: bool = False, body: bytes = BODY, total_s: float = 30.0) -> Call:
    return Call("req-1", body, stream, total_s=total_s)
