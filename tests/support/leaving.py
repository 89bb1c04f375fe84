"""A client on a bare socket that asks and then goes away, and what it left behind."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from typing import Any

from support.appliance import CLEAN, Box
from support.clients import http_client
from support.configs import KEY
from support.soon import SOON_S

FIN, RST = "FIN", "RST"


class RawClient:
    """One request on one connection. `text` is all that has come back so far."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.text = b""

    @classmethod
    async def ask(cls, port: int, model: str, *, stream: bool, key: str = KEY) -> RawClient:
        """Connect and send one chat request."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.send(model, stream=stream, key=key)
        return client

    def send(self, model: str, *, stream: bool, key: str = KEY) -> None:
        """One (more) request on this connection."""
        messages = [{"role": "user", "content": CLEAN}]
        body = json.dumps({"model": model, "stream": stream, "messages": messages}).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: box\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)

    async def until(self, wanted: bytes) -> None:
        """Read until `wanted` has come."""
        async with asyncio.timeout(SOON_S):
            while wanted not in self.text:
                data = await self._reader.read(65_536)
                assert data, f"closed before {wanted!r} came, after {self.text!r}"
                self.text += data

    async def rest(self) -> bytes:
        """Everything up to the end of the connection; a reset is an end, too."""
        async with asyncio.timeout(SOON_S):
            with suppress(ConnectionError):
                while data := await self._reader.read(65_536):
                    self.text += data
        self._writer.close()
        return self.text

    async def whole_answer(self, end: bytes) -> bytes:
        """All that comes up to `end` within the body, or to the end of the connection."""
        async with asyncio.timeout(SOON_S):
            with suppress(ConnectionError):
                while end not in self.text.partition(b"\r\n\r\n")[2]:
                    data = await self._reader.read(65_536)
                    if not data:
                        break
                    self.text += data
        self._writer.close()
        return self.text

    async def error(self) -> tuple[int, str]:
        """Status and code of a refusal."""
        await self.until(b"\r\n\r\n")
        await self.until(b"}}")
        head, _, body = self.text.partition(b"\r\n\r\n")
        self._writer.close()
        return int(head.split()[1]), json.loads(body)["error"]["code"]

    def leave(self, way: str = FIN) -> None:
        """Close the socket."""
        if way == RST:
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        else:
            self._writer.close()


def records(box: Box, event: str) -> list[dict[str, Any]]:
    """The audit records of one kind, oldest first."""
    lines = [
        line
        for path in sorted(box.site.appliance.paths.audit.glob("audit-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [record for record in map(json.loads, lines) if record["event"] == event]


async def metrics(box: Box) -> dict[str, float]:
    """Every sample of `/metrics`, by its text form."""
    async with http_client() as client:
        text = (await client.get(f"{box.admin_url}/metrics")).text
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def worker_status(box: Box, worker: str) -> dict[str, Any]:
    """How the pool sees one worker now."""
    found: dict[str, Any] = next(w for w in box.server.parts.pool.status() if w["id"] == worker)
    return found
