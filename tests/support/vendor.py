"""A simulated vendor, an egress process in this process, and the permits to use it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.core import Card, Destination, RemoteEndpoint, SecretRef, Worker, WorkerLimits
from conductor.egress.gate import PermitGate
from conductor.egress.permit import Permit, boottime_ns, digest, mint
from conductor.egress.providers import LiteLLMProvider, Provider
from conductor.egress.server import EgressService, new_epoch, serving
from conductor.labels import Clearance, Lattice
from conductor.secretrefs import Secret
from conductor.simulated.vendor import Received, SimulatedVendor
from support.clearances import only

LATTICE = Lattice(
    ("public", "internal", "confidential", "restricted"), frozenset({"pii", "secret", "unscanned"})
)
VENDOR_KEY = "vk-simulated-0123456789"
DESTINATION = Destination("frontier", "remote", Clearance(1), {"kind": "remote"}, "policy.yaml:1:1")
PATIENT = WorkerLimits(connect_s=60.0, first_byte_s=60.0, idle_s=60.0, total_s=60.0)
"""So that no timer ends what none is meant to end."""


@contextmanager
def short_directory() -> Iterator[Path]:
    """Short, because a Unix socket's path has at most 107 bytes."""
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def remote_worker(port: int, model: str = "ok", limits: WorkerLimits = PATIENT) -> Worker:
    """A worker at a vendor on loopback; its id is its model's name."""
    return Worker(
        id=model,
        model=model,
        destination=DESTINATION,
        clearance=DESTINATION.clearance,
        endpoint=RemoteEndpoint(
            "openai", f"http://127.0.0.1:{port}/v1", SecretRef("env", "VENDOR_KEY")
        ),
        card=Card({"general": 0.5}, 50.0, "declared"),
        limits=limits,
    )


def chat_body(text: str = "hello", *, stream: bool = False, **more: Any) -> bytes:
    """A canonical request."""
    body = {"messages": [{"role": "user", "content": text}], "stream": stream, **more}
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


@dataclass
class Egress:
    """An egress service on a Unix socket, with the vendor behind it and the minting key beside."""

    vendor: SimulatedVendor
    gate: PermitGate
    socket: Path
    private_key: Ed25519PrivateKey
    session: aiohttp.ClientSession
    serial: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def permit(self, body: bytes, worker_id: str, **changed: Any) -> Permit:
        """A valid permit, but for the fields named."""
        permit = Permit(
            id=f"permit-{next(self.serial)}",
            body_sha256=digest(body),
            worker=worker_id,
            destination="frontier",
            label="internal",
            policy_revision=1,
            decision_id="decision-1",
            epoch=self.gate.epoch,
            expires_boottime_ns=boottime_ns() + 20 * 10**9,
        )
        return replace(permit, **changed)

    def token(self, body: bytes, worker_id: str, **changed: Any) -> str:
        return mint(self.private_key, self.permit(body, worker_id, **changed))

    def post(self, body: Any, worker_id: str, token: str | None = None, **headers: str) -> Any:
        """The request, as a context manager; `token` None mints a valid one."""
        token = self.token(body, worker_id) if token is None else token
        names = {"x-conductor-permit": token, "x-conductor-worker": worker_id, **headers}
        return self.session.post("http://egress/v1/chat/completions", data=body, headers=names)

    async def open(
        self, body: bytes, worker_id: str, *, cut: int = 0
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A permitted request on a bare connection; its last `cut` bytes are held back."""
        reader, writer = await asyncio.open_unix_connection(str(self.socket))
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: egress\r\n"
            f"x-conductor-permit: {self.token(body, worker_id)}\r\n"
            f"x-conductor-worker: {worker_id}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body[: len(body) - cut])
        await writer.drain()
        return reader, writer

    async def ask(self, model: str, *, stream: bool = False, **more: Any) -> Answer:
        """Send one permitted request and read all of the answer."""
        async with self.post(chat_body(stream=stream, **more), model) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    @property
    def last(self) -> Received:
        return self.vendor.requests[-1]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def failure(self) -> str | None:
        """What the header names, or the error inside the stream."""
        named = {name.lower(): value for name, value in self.headers.items()}
        if "x-conductor-failure" in named:
            return named["x-conductor-failure"]
        error = self.events[-1].get("error") if self.events else None
        return str(error["failure"]) if error else None

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [orjson.loads(line) for line in lines if line != b"[DONE]"]

    @property
    def done(self) -> bool:
        return self.body.endswith(b"data: [DONE]\n\n")

    @property
    def text(self) -> str:
        """The answer's text, whichever way and however far it came."""
        if not self.events:
            return str(orjson.loads(self.body)["choices"][0]["message"]["content"])
        choices = [choice for event in self.events for choice in event.get("choices", ())]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


@asynccontextmanager
async def running_egress(
    *models: str, limits: WorkerLimits = PATIENT, provider: Provider | None = None
) -> AsyncIterator[Egress]:
    """Vendor and egress, with one worker for each model name."""
    key = Ed25519PrivateKey.generate()
    async with SimulatedVendor() as vendor:
        port = await vendor.start_tcp()
        workers = tuple(remote_worker(port, model, limits) for model in models)
        keys = {worker.id: Secret(VENDOR_KEY) for worker in workers}
        gate = PermitGate(key.public_key(), new_epoch(), only(workers, LATTICE))
        with short_directory() as directory:
            socket = directory / "egress.sock"
            async with LiteLLMProvider(workers, keys) as litellm:
                await litellm.prove()
                service = EgressService(gate, provider or litellm, max_body_bytes=2**21)
                async with serving(socket, service, drain_s=0.2):
                    connector = aiohttp.UnixConnector(str(socket), limit=0)
                    async with aiohttp.ClientSession(connector=connector) as session:
                        yield Egress(vendor, gate, socket, key, session)
