"""An appliance whose engine plans round by round as a test says, over workers that talk to order.

    engine = Scripted([("0 q -\n1 q -\n", LOOK), ("", FINAL)])
    async with talking(monkeypatch, engine, Voice("42"), Voice("42.0")) as box:

The voices are local workers, `voice-0` and so on, behind real sockets; after them comes a remote
one, `REMOTE`, at the simulated vendor.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from conductor.core import PlanRequest
from conductor.plan.language import parse
from conductor.planner.engine import Planned
from support import rawpeer
from support.appliance import CLEAN, REMOTE, Box, appliance
from support.configs import Tree, local_worker, remote_worker

LOOK, FINAL = True, False
ROOM: Tree = {"limits": {"context_tokens": 100_000}}


@dataclass
class Scripted:
    """A plan engine: one entry of `script` a question, the last one again and again. An entry is a
    plan and whether it asks for a look, or a whole answer, or an error to raise."""

    script: Sequence[tuple[str, bool] | Planned | Exception]
    name: str = "default"
    asked: list[PlanRequest] = field(default_factory=list)
    gates: dict[int, asyncio.Event] = field(default_factory=dict)
    """By round, from 0: what to wait for before answering."""

    async def ready(self) -> bool:
        return True

    async def plan(self, request: PlanRequest) -> Planned:
        turn = len(self.asked)
        self.asked.append(request)
        if turn in self.gates:
            await self.gates[turn].wait()
        entry = self.script[min(turn, len(self.script) - 1)]
        if isinstance(entry, Exception):
            raise entry
        if isinstance(entry, Planned):
            return entry
        text, look = entry
        return Planned(parse(text, len(request.heard)), self.name, look=look)


@dataclass
class Voice:
    """A local worker that gives every request the same answer, plain or word by word, once `gate`
    is open; with `status` it refuses instead, with `cut` a streamed answer breaks off."""

    says: str
    status: int = 200
    cut: bool = False
    gate: asyncio.Event | None = None
    finish: str = "stop"
    message: dict[str, Any] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody hung up while it waited at its gate."""

    async def script(
        self, peer: rawpeer.Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await peer.read_request(reader)
            body = json.loads(peer.bodies[-1])
            self.bodies.append(body)
            if self.gate is not None and not await self._opened(reader):
                return
            if self.status != 200:
                writer.write(rawpeer.status(f"{self.status} No", b"{}"))
            elif body["stream"]:
                writer.write(self._stream())
            else:
                writer.write(rawpeer.plain(json.dumps(self._plain()).encode()))
            await writer.drain()
            if self.cut:
                return

    async def _opened(self, reader: asyncio.StreamReader) -> bool:
        """Wait for the gate; False when the caller has hung up before."""
        assert self.gate is not None
        gate, end = (asyncio.ensure_future(one) for one in (self.gate.wait(), reader.read(1)))
        await asyncio.wait([gate, end], return_when=asyncio.FIRST_COMPLETED)
        if gate.done():
            end.cancel()
            await asyncio.wait([end])
            return True
        gate.cancel()
        self.left.set()
        return False

    def _plain(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.says, **self.message}
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {"choices": [choice], "usage": usage}

    def _stream(self) -> bytes:
        deltas = [{"content": f"{word} "} for word in self.says.split()]
        chunks = [_chunk(delta, None) for delta in deltas]
        if self.cut:
            return rawpeer.SSE + b"".join(map(rawpeer.event, chunks))
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        chunks += [_chunk({}, self.finish), json.dumps({"choices": [], "usage": usage}).encode()]
        events = b"".join(map(rawpeer.event, [*chunks, b"[DONE]"]))
        return rawpeer.SSE + events + rawpeer.chunked(b"")


def _chunk(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"choices": [choice]}).encode()


@asynccontextmanager
async def talking(
    monkeypatch: pytest.MonkeyPatch,
    engine: Scripted,
    *voices: Voice,
    remote: str = "ok",
    abroad: bool = False,
    **changes: Any,
) -> AsyncIterator[Box]:
    """The appliance with these voices; `engine` plans in `serve` itself. Only `abroad` can the
    remote worker be reached, which does what `remote` names, see `conductor.simulated.behaviours`.
    """
    monkeypatch.setattr("conductor.run.services.DefaultEngine", lambda: engine)
    async with AsyncExitStack() as stack:
        pool = []
        for place, voice in enumerate(voices):
            peer = await stack.enter_async_context(rawpeer.serving(voice.script))
            port = peer.endpoint.port  # type: ignore[union-attr]
            pool.append(local_worker(f"voice-{place}", port=port, **ROOM))
        pool.append(remote_worker(REMOTE, "{vendor}", model=remote, **ROOM))
        yield await stack.enter_async_context(
            appliance(workers=pool, with_egress=abroad, **changes)
        )


@dataclass(frozen=True)
class Told:
    """An answer as a client got it, streamed or not."""

    status: int
    headers: httpx.Headers
    text: str
    body: dict[str, Any]
    """The plain answer, the error, or of a stream its last chunk."""
    raw: str

    @property
    def trace(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["conductor"]
        return found


async def ask(
    box: Box,
    *,
    stream: bool = False,
    text: str = CLEAN,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> Told:
    """One question, with its trace."""
    body = {"model": "conductor", "messages": [{"role": "user", "content": text}], **fields}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    async with box.http() as http:
        answer = await http.post(
            "/v1/chat/completions",
            json=body,
            headers=[(b"x-conductor-trace", b"true"), *_encoded(headers or {})],
        )
    if not answer.headers["content-type"].startswith("text/event-stream"):
        said = answer.json()
        content = said["choices"][0]["message"]["content"] if "choices" in said else ""
        return Told(answer.status_code, answer.headers, content or "", said, answer.text)
    chunks = [
        json.loads(line[6:])
        for line in answer.text.splitlines()
        if line.startswith("data: ") and line != "data: [DONE]"
    ]
    words = [c["delta"].get("content") or "" for k in chunks for c in k.get("choices", ())]
    return Told(answer.status_code, answer.headers, "".join(words), chunks[-1], answer.text)


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
