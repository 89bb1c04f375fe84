"""Looking at the API's wire: raw exchanges, event streams, metrics, audit records."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import httpx
from aiohttp.web_protocol import RequestHandler
from prometheus_client.parser import text_string_to_metric_families

from conductor.audit.segments import read_since
from support.appliance import Box
from support.clients import http_client
from support.configs import KEY
from support.soon import SOON_S, until

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def chat(model: str = "conductor", **more: Any) -> dict[str, Any]:
    """A chat completion request."""
    return {"model": model, "messages": HELLO, **more}


def is_envelope(response: httpx.Response, status: int, code: str | None) -> bool:
    """Whether an answer is the error envelope with these, and carries a request id."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == code, body
    return isinstance(body["error"]["message"], str) and bool(body["error"]["message"])


def post(body: bytes, *headers: str, key: str = KEY, path: str = CHAT) -> bytes:
    """The bytes of a POST with a declared length."""
    return head(path, f"Content-Length: {len(body)}", *headers, key=key) + body


def head(path: str, *headers: str, key: str = KEY, method: str = "POST") -> bytes:
    """A request's head, to its blank line."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def exchange(box: Box, *pieces: bytes, pause_s: float = 0.02) -> bytes:
    """Send the pieces one after the other; everything that comes until the appliance closes, or
    says nothing for a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", box.server.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        received = b""
        try:
            async with asyncio.timeout(SOON_S):
                while data := await reader.read(1 << 16):
                    received += data
                    if _complete(received):
                        break
        except TimeoutError:
            return received + b"\n[still open]"
        return received
    finally:
        writer.close()


def _complete(received: bytes) -> bool:
    """Whether one answer with a declared length is there."""
    final = received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    top, _, body = final.partition(b"\r\n\r\n")
    for line in top.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return False


def connections() -> list[RequestHandler[Any]]:
    """The API's side of every open connection."""
    # By type: `isinstance` asks every object for its class, and some of torch's warn at that.
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), RequestHandler)]
    return [connection for connection in found if connection.transport is not None]


def events(text: str) -> list[Any]:
    """The data of each event, decoded; `[DONE]` as it stands; comments left out."""
    found: list[Any] = []
    for block in text.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            assert "\n" not in data
            found.append(data if data == "[DONE]" else json.loads(data))
        else:
            assert not block or block.startswith(":"), block
    return found


def content(chunks: list[Any]) -> str:
    """What the chunks say, first choice."""
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in chunks
        if isinstance(chunk, dict)
        for choice in chunk.get("choices", [])
        if choice["index"] == 0
    )


async def metrics(box: Box) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of the admin listener's `/metrics`."""
    async with http_client() as client:
        text = (await client.get(f"{box.admin_url}/metrics")).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def counted(box: Box, name: str, **labels: str) -> float:
    """The sum over all samples of `name` whose labels include these."""
    wanted = set(labels.items())
    found = await metrics(box)
    return sum(value for (n, have), value in found.items() if n == name and wanted <= have)


def audit(box: Box, event: str) -> list[dict[str, Any]]:
    """The audit records of one kind, oldest first."""
    records = read_since(box.site.appliance.paths.audit, "2000-01-01")
    return [record for record in records if record.get("event") == event]


async def ended(box: Box, count: int = 1) -> list[dict[str, Any]]:
    """The outcomes of `count` requests, once all of them are over and counted."""
    await until(lambda: len(audit(box, "outcome")) >= count and box.server.door.inside == 0)
    return audit(box, "outcome")
