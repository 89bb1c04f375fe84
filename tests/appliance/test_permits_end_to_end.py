"""At the egress process's own door: without a permit for exactly this body, here and now, no byte
leaves; and `serve` gets over a restart of egress by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.egress.client import EgressLink
from conductor.egress.permit import Permit, boottime_ns, digest, load_private, mint
from support.appliance import CLEAN, IBAN, LOCAL, REMOTE, Box, appliance, egress_of
from support.configs import Tree, local_worker, remote_worker
from support.leaks import audit_bytes, send
from support.places import user

BODY = orjson.dumps({"messages": [{"role": "user", "content": CLEAN}], "stream": False})
SECOND_NS = 1_000_000_000


def pool() -> list[Tree]:
    """Two workers at the same vendor, the second with a lower clearance, and one at home."""
    return [
        local_worker(LOCAL, port=0, model="ok"),
        remote_worker(REMOTE, "{vendor}", model="ok", limits={"max_in_flight": 128}),
        remote_worker(
            "remote-public",
            "{vendor}",
            model="ok",
            clearance={"level": "public", "compartments": []},
        ),
    ]


def egress_socket(box: Box) -> Path:
    return box.site.appliance.paths.egress_socket


def signing_key(box: Box) -> Ed25519PrivateKey:
    return load_private(box.site.appliance.paths.permit_key)


async def a_permit(box: Box, body: bytes = BODY, **changes: Any) -> Permit:
    """What `serve` would mint for `body`, with `changes`."""
    return replace(
        Permit(
            id=f"{boottime_ns():032x}",
            body_sha256=digest(body),
            worker=REMOTE,
            destination="frontier",
            label="internal",
            policy_revision=1,
            decision_id="d" * 24,
            epoch=await EgressLink(egress_socket(box)).epoch(),
            expires_boottime_ns=boottime_ns() + 5 * SECOND_NS,
        ),
        **changes,
    )


async def knock(
    box: Box, token: str | None, body: bytes = BODY, worker: str = REMOTE
) -> tuple[int, str | None]:
    """Send straight to egress; the status, and the reason of a refusal."""
    headers = {"x-conductor-worker": worker, "content-type": "application/json"}
    if token is not None:
        headers["x-conductor-permit"] = token
    connector = aiohttp.UnixConnector(str(egress_socket(box)))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post("http://e/v1/chat/completions", data=body, headers=headers) as answer,
    ):
        await answer.read()
        return answer.status, answer.headers.get("x-conductor-reason")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncIterator[Box]:
    async with appliance(workers=pool()) as started:
        yield started


@pytest.mark.asyncio(loop_scope="module")
async def test_the_right_permit_opens_the_door_once(box: Box) -> None:
    token = mint(signing_key(box), await a_permit(box))
    before = len(box.vendor.requests)
    assert await knock(box, token) == (200, None)
    assert len(box.vendor.requests) == before + 1
    sent = len(box.vendor.received)
    for _ in range(3):
        assert await knock(box, token) == (403, "replay")
    assert len(box.vendor.received) == sent


FORGERIES: dict[str, tuple[dict[str, Any], str]] = {
    "expired a moment ago": ({"expires_boottime_ns": 0}, "expired"),
    "good for a year": ({"expires_boottime_ns": 2**62}, "expired"),
    "for another body": ({"body_sha256": digest(b"{}")}, "body"),
    "for another worker": ({"worker": "remote-public"}, "worker"),
    "for another destination": ({"destination": "box"}, "destination"),
    "for another run of egress": ({"epoch": "0" * 32}, "epoch"),
    "for an unknown label": ({"label": "harmless"}, "label"),
    "for a label above the clearance": ({"label": "confidential"}, "clearance"),
    "for a compartment it may not see": ({"label": "public+pii"}, "clearance"),
    "for what nobody could read": ({"label": "public+unscanned"}, "clearance"),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_permit_that_says_something_else_opens_nothing(box: Box, forgery: str) -> None:
    """Even when it is signed with the true key."""
    changes, reason = FORGERIES[forgery]
    sent, connections = len(box.vendor.received), len(box.vendor.connections)
    token = mint(signing_key(box), await a_permit(box, **changes))
    assert await knock(box, token) == (403, reason)
    assert (len(box.vendor.received), len(box.vendor.connections)) == (sent, connections)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_worker_with_less_clearance_gets_less(box: Box) -> None:
    sent = len(box.vendor.received)
    permit = await a_permit(box, worker="remote-public")
    token = mint(signing_key(box), permit)
    assert await knock(box, token, worker="remote-public") == (403, "clearance")
    assert len(box.vendor.received) == sent


def _flipped(token: str, place: int) -> str:
    return token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]


TAMPERED: dict[str, Callable[[str], str | None]] = {
    "none": lambda token: None,
    "empty": lambda token: "",
    "rubbish": lambda token: "e30.e30",
    "no signature": lambda token: token.partition(".")[0] + ".",
    "half a signature": lambda token: token[:-20],
    "another byte said": lambda token: _flipped(token, 10),
    "another byte signed": lambda token: _flipped(token, len(token) - 10),
    "stray bits at its end": lambda token: token[:-1] + chr(ord(token[-1]) ^ 1),
    "twice": lambda token: f"{token}, {token}",
    "a bearer": lambda token: f"Bearer {token}",
    "huge": lambda token: "A" * 7000 + "." + "A" * 86,
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("how", TAMPERED)
async def test_a_tampered_permit_opens_nothing(box: Box, how: str) -> None:
    sent, connections = len(box.vendor.received), len(box.vendor.connections)
    token = mint(signing_key(box), await a_permit(box))
    status, reason = await knock(box, TAMPERED[how](token))
    assert (status, reason in ("malformed", "signature")) == (403, True)
    assert (len(box.vendor.received), len(box.vendor.connections)) == (sent, connections)
    assert await knock(box, token) == (200, None)  # it was good, and is not used up


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stranger_s_key_opens_nothing(box: Box) -> None:
    sent = len(box.vendor.received)
    token = mint(Ed25519PrivateKey.generate(), await a_permit(box))
    assert await knock(box, token) == (403, "signature")
    assert len(box.vendor.received) == sent


@pytest.mark.asyncio(loop_scope="module")
async def test_an_altered_body_is_not_sent(box: Box) -> None:
    sent = len(box.vendor.received)
    key = signing_key(box)
    altered = [
        BODY.replace(CLEAN.encode(), IBAN.encode()),
        BODY + b" ",
        BODY.replace(b'"stream":false', b'"stream":true'),
        b"",
        b'{"model":"other",' + BODY[1:],
    ]
    for body in altered:
        assert await knock(box, mint(key, await a_permit(box)), body) == (403, "body")
    assert len(box.vendor.received) == sent


@pytest.mark.asyncio(loop_scope="module")
async def test_a_hundred_at_once_with_one_permit_send_once(box: Box) -> None:
    before = len(box.vendor.requests)
    token = mint(signing_key(box), await a_permit(box))
    answers = await asyncio.gather(*(knock(box, token) for _ in range(100)))
    assert sorted(answers, key=str)[0] == (200, None)
    assert answers.count((403, "replay")) == 99
    assert len(box.vendor.requests) == before + 1


# -- captured from a real run -----------------------------------------------------------------


@dataclass
class Tap:
    """A listener between `serve` and egress that keeps what `serve` sends."""

    requests: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def tapped(box: Box) -> AsyncIterator[Tap]:
    tap, socket = Tap(), egress_socket(box)
    behind = socket.with_name("behind.sock")
    socket.rename(behind)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(behind)
        kept = bytearray()
        tap.requests.append(b"")
        place = len(tap.requests) - 1

        async def out() -> None:
            while data := await reader.read(65536):
                kept.extend(data)
                tap.requests[place] = bytes(kept)
                far_writer.write(data)

        async def back() -> None:
            while data := await far_reader.read(65536):
                writer.write(data)

        tasks = [asyncio.create_task(out()), asyncio.create_task(back())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        far_writer.close()
        writer.close()

    server = await asyncio.start_unix_server(carry, socket)
    try:
        yield tap
    finally:
        server.close()
        socket.unlink(missing_ok=True)
        behind.rename(socket)


async def replay(box: Box, captured: bytes) -> bytes:
    """Send captured bytes as they were; what comes back, up to the end of the head."""
    reader, writer = await asyncio.open_unix_connection(egress_socket(box))
    writer.write(captured)
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return head


async def test_what_was_captured_cannot_be_used_again_nor_after_a_restart() -> None:
    async with appliance(workers=pool(), with_egress=False) as box:
        async with egress_of(box.site):
            async with tapped(box) as tap:
                assert await send(box.client(), user(CLEAN), REMOTE) == REMOTE
            captured = [data for data in tap.requests if b"x-conductor-permit" in data.lower()]
            assert len(captured) == 1
            sent = len(box.vendor.received)
            assert sent
            head = await replay(box, captured[0])
            assert b" 403 " in head and b"replay" in head
        async with egress_of(box.site):
            head = await replay(box, captured[0])
            assert b" 403 " in head and b"epoch" in head
        assert len(box.vendor.received) == sent


# -- restarts ---------------------------------------------------------------------------------


async def test_serve_gets_over_a_restart_of_egress_with_one_attempt() -> None:
    async with appliance(workers=pool(), with_egress=False) as box:
        client = box.client()
        async with egress_of(box.site):
            for stream in (False, True):
                assert await send(client, user(CLEAN), REMOTE, stream=stream) == REMOTE
        for stream in (False, True):
            async with egress_of(box.site):
                before = len(box.vendor.requests)
                assert await send(client, user(CLEAN), REMOTE, stream=stream) == REMOTE
                assert len(box.vendor.requests) == before + 1


async def test_a_hundred_requests_over_a_restart_are_all_answered_once() -> None:
    async with appliance(workers=pool(), with_egress=False) as box:
        client = box.client()
        async with egress_of(box.site):
            await send(client, user(CLEAN), REMOTE)
        async with egress_of(box.site):
            before = len(box.vendor.requests)
            told = await asyncio.gather(
                *(send(client, user(f"{CLEAN} {n}"), REMOTE, stream=n % 2 == 0) for n in range(100))
            )
            assert set(told) == {REMOTE}
            bodies = {request.body for request in box.vendor.requests[before:]}
            assert len(box.vendor.requests) - before == len(bodies) == 100


async def test_while_egress_is_down_home_answers_and_then_the_vendor_again() -> None:
    async with appliance(workers=pool(), with_egress=False) as box:
        client = box.client()
        async with egress_of(box.site):
            assert await send(client, user(CLEAN), REMOTE) == REMOTE
        sent = len(box.vendor.received)
        assert (await send(client, user(CLEAN), REMOTE))[:3] in ("502", "503")
        assert await send(client, user(CLEAN), "conductor-quality") == LOCAL
        assert await send(client, user(IBAN), "conductor-quality") == LOCAL
        assert len(box.vendor.received) == sent
        async with egress_of(box.site):
            for _ in range(300):  # until the breaker lets a probe through
                told = await send(client, user(CLEAN), REMOTE)
                if told == REMOTE:
                    break
                await asyncio.sleep(0.1)
            assert told == REMOTE


async def test_every_byte_that_left_was_recorded_before_it_did() -> None:
    async with appliance(workers=pool()) as box:
        seen: list[bytes] = []
        box.vendor.on_request = lambda _: seen.append(audit_bytes(box))
        for stream in (False, True):
            assert await send(box.client(), user(CLEAN), REMOTE, stream=stream) == REMOTE
        assert [audit.count(b'"egress"') for audit in seen] == [1, 2]
        assert [audit.count(b'"decision"') >= n for n, audit in enumerate(seen, 1)] == [True, True]
