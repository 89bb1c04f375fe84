"""Peers that answer to do harm, and what a client and the log get of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from support.appliance import LOCAL, REMOTE, appliance
from support.configs import local_worker, remote_worker
from support.leaks import logged
from support.wire import CHAT, chat

WORDS = "words-of-the-peer-7f3a"
_LENGTH = re.compile(rb"content-length: (\d+)")


@dataclass
class Peer:
    """Answers every request with the same bytes and hangs up."""

    answer: bytes
    port: int = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Peer]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head.lower())
            await reader.readexactly(int(found[1]) if found else 0)
            writer.write(self.answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def plain(body: str | bytes, status: str = "200 OK", *headers: str) -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    lines = ["Content-Type: application/json", f"Content-Length: {len(raw)}", *headers]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + raw


def stream(*events: str) -> bytes:
    return plain("".join(events)).replace(b"application/json", b"text/event-stream")


def completion(content: object = "fine", choices: int = 1, **message: object) -> str:
    message = {"role": "assistant", "content": content, **message}
    choice = {"message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [{"index": i, **choice} for i in range(choices)]})


def event(value: object) -> str:
    return f"data: {json.dumps(value)}\n\n"


def delta(text: str, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event({"choices": [choice]})


ERROR = json.dumps({"error": {"message": WORDS, "type": WORDS, "param": WORDS, "code": WORDS}})


async def told(answer: bytes, *, remote: bool, streamed: bool) -> tuple[int, str, str]:
    """Status and text that a client gets, and what is logged, when a lone worker answers so."""
    async with Peer(answer).listening() as peer:
        url = f"http://127.0.0.1:{peer.port}/v1"
        worker = remote_worker(REMOTE, url) if remote else local_worker(LOCAL, port=peer.port)
        with logged() as log:
            async with appliance(workers=[worker]) as box:
                said = await box.http().post(CHAT, json=chat(stream=streamed))
                head = str(said.headers)
                return said.status_code, head + said.text, log.getvalue()
