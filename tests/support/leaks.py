"""Whether anything leaked: at the vendor, and in all that the appliance writes or says."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import structlog
from openai import APIError, APIStatusError, AsyncOpenAI

from conductor.logs import StandardLibraryHandler, configure
from support.appliance import LOCAL, REMOTE, Box
from support.configs import Tree, local_worker, remote_worker
from support.places import halves

POOR: Tree = {"skill": {"general": 0.4}, "output_tokens_per_s": 50, "source": "declared"}
GOOD: Tree = {"skill": {"general": 0.95}, "output_tokens_per_s": 50, "source": "declared"}
CONDUCTORS = ("conductor", "conductor-quality", "conductor-thrifty")


def only_remote_is_good() -> list[Tree]:
    """A pool of which every request goes to the remote worker, if it may."""
    return [
        local_worker(LOCAL, port=0, model="ok", card=POOR),
        remote_worker(REMOTE, "{vendor}", model="ok", card=GOOD),
    ]


class Untouched:
    """True while the vendor has got nothing since this was made: no byte, no connection."""

    def __init__(self, box: Box) -> None:
        self._vendor = box.vendor
        self._before = self._seen()

    def _seen(self) -> tuple[int, int]:
        return len(self._vendor.connections), len(self._vendor.received)

    def __bool__(self) -> bool:
        return self._seen() == self._before


def spellings(secret: str) -> list[bytes]:
    """How the secret could stand in bytes: as it is, by case, encoded, and each half of it."""
    raw = secret.encode()
    ways = [raw, raw.lower(), raw.upper(), *(half.encode() for half in halves(secret))]
    ways += [raw.hex().encode(), raw.hex().upper().encode(), quote(secret, safe="").encode()]
    ways.append("".join(f"\\u{ord(c):04x}" for c in secret).encode())
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        ways.append(encoded[4 if shift else 0 : -4])
    return ways


def traces(secret: str, **where: bytes) -> list[str]:
    """Names of those `where` that hold the secret in any spelling."""
    return [name for name, data in where.items() if any(w in data for w in spellings(secret))]


def audit_bytes(box: Box) -> bytes:
    """Everything below the audit directory."""
    files = sorted(p for p in box.site.appliance.paths.audit.rglob("*") if p.is_file())
    return b"".join(path.read_bytes() for path in files)


async def public_bytes(box: Box) -> dict[str, bytes]:
    """What the appliance says of itself to whoever may look: metrics, status, readiness, models."""
    said = {}
    async with box.http() as http:
        for path in ("/metrics", "/status", "/readyz"):
            said[path] = (await http.get(box.admin_url + path)).content
        said["/v1/models"] = (await http.get("/v1/models")).content
    return said


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """Everything logged, in the form and through the filters of a real process."""
    root = logging.getLogger()
    level, out = root.level, io.StringIO()
    configure("json", "debug", out)
    try:
        yield out
    finally:
        structlog.reset_defaults()
        root.setLevel(level)
        for handler in root.handlers[:]:
            if isinstance(handler, StandardLibraryHandler):
                root.removeHandler(handler)


async def send(
    client: AsyncOpenAI, body: Mapping[str, Any], model: str, *, stream: bool = False, **more: Any
) -> str:
    """Send through the official client; the worker that answered, `status code`, or `broken off`
    for a stream that ends with an error."""
    extra = {name: value for name, value in body.items() if name != "messages"}
    try:
        answer = await client.chat.completions.create(
            model=model, messages=body["messages"], stream=stream, extra_body=extra, **more
        )
        if not stream:
            return str(answer.model)
        return [str(chunk.model) async for chunk in answer][-1]
    except APIStatusError as error:
        detail = error.body if isinstance(error.body, dict) else {}
        return f"{error.status_code} {detail.get('code')}"
    except APIError:
        return "broken off"
