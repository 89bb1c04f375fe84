"""A client who means harm: two identities in one, places held for nothing, a look around."""

from __future__ import annotations

import asyncio
import json
import resource

import pytest

from support.appliance import IBAN, Box, appliance, until
from support.configs import KEY, TRUSTED_KEY
from support.wire import CHAT, audit, chat, connections, exchange, head, is_envelope, post

BODY = json.dumps(chat("conductor-local")).encode()


@pytest.mark.parametrize("other", [f"Bearer {TRUSTED_KEY}", f"Bearer {KEY}", "Bearer no", ""])
async def test_two_authorizations_are_none(other: str) -> None:
    async with appliance() as box:
        answer = await exchange(box, post(BODY, f"Authorization: {other}"))
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert audit(box, "decision") == []


SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
DOUBTFUL = {
    "length and chunks": post(b"0\r\n\r\n" + SMUGGLED, "Transfer-Encoding: chunked"),
    "an unknown coding": post(BODY, "Transfer-Encoding: xchunked"),
    "two codings": head(CHAT, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    "two lengths": post(BODY, "Content-Length: 5"),
    "a list of lengths": head(CHAT, f"Content-Length: {len(BODY)}, {len(BODY)}") + BODY,
    "a length with a sign": head(CHAT, f"Content-Length: +{len(BODY)}") + BODY,
    "a negative length": head(CHAT, "Content-Length: -1"),
    "a length beyond 64 bits": head(CHAT, "Content-Length: 99999999999999999999"),
    "a folded line": head(CHAT, "X-A: 1\r\n b", f"Content-Length: {len(BODY)}") + BODY,
    "a space before the colon": head(CHAT, f"Content-Length : {len(BODY)}") + BODY,
    "a bare line feed": head(CHAT, f"Content-Length: {len(BODY)}").replace(b"\r\n", b"\n") + BODY,
    "a NUL in a header": head(CHAT, "X-A: a\0b", f"Content-Length: {len(BODY)}") + BODY,
    "a negative chunk": head(CHAT, "Transfer-Encoding: chunked") + b"-1\r\n\r\n",
    "a bare line feed in a chunk": head(CHAT, "Transfer-Encoding: chunked") + b"2;a\nxx\r\n0\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBTFUL)
async def test_a_request_that_two_readers_could_frame_differently_is_refused(name: str) -> None:
    async with appliance() as box:
        answer = await exchange(box, DOUBTFUL[name])
        assert answer.count(b"x-request-id: ") == 1
        assert b" 400 Bad Request\r\n" in answer
        assert box.local.received + box.vendor.received == b""


async def test_bodies_that_are_announced_and_never_sent_shut_nobody_out() -> None:
    async with appliance() as box:
        size = box.site.appliance.api.max_body_bytes
        held = [await opened(box, head(CHAT, f"Content-Length: {size}") + b"{") for _ in range(20)]
        await until(lambda: box.server.door.inside == 20)
        answer = await box.http().post(CHAT, json=chat(), headers=key(TRUSTED_KEY))
        assert answer.status_code == 200
        for writer in held:
            writer.close()


@pytest.mark.parametrize("framing", ["Content-Length: 1048576", "Transfer-Encoding: chunked"])
async def test_bodies_that_do_come_are_bounded_together(framing: str) -> None:
    limits = {"api": {"max_body_bytes": 1 << 20, "max_in_flight_body_bytes": 2 << 20}}
    most = head(CHAT, framing) + (b"ffffe\r\n" if "chunked" in framing else b"") + b"x" * 0xFFFFE
    async with appliance(appliance=limits) as box:
        held = [await opened(box, most) for _ in range(2)]
        # A short body still finds room until both long ones have come.
        http = box.http()
        while (await http.post("/v1/plan", json=chat())).status_code != 503:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        late = await exchange(
            box, head(CHAT, "Transfer-Encoding: chunked") + b"ff\r\n" + b"x" * 255
        )
        assert late.startswith(b"HTTP/1.1 503 ")
        assert is_envelope(await box.http().post(CHAT, json=chat()), 503, "overloaded")
        for writer in held:
            writer.close()
        await until(lambda: box.server.door.inside == 0)
        assert (await box.http().post(CHAT, json=chat())).status_code == 200


async def test_clients_take_half_of_all_files_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (60, 60))
    async with appliance() as box:
        monkeypatch.undo()
        crowd = [await opened(box, b"") for _ in range(30)]
        await until(lambda: len(connections()) == 30)
        assert await exchange(box, head("/healthz", method="GET")) == b""
        assert b" 200 OK" in await admin(box, "/healthz")
        for writer in crowd:
            writer.close()
        await until(lambda: not connections())
        assert b" 200 OK" in await exchange(box, head("/healthz", method="GET"))


async def test_an_explanation_tells_no_path_of_this_machine() -> None:
    async with appliance() as box:
        question = chat(messages=[{"role": "user", "content": IBAN}])
        answer = await box.http().post("/v1/plan", json=question)
        denied = [v for v in answer.json()["verdicts"] if v["decision"] == "deny"]
        assert [v["position"].partition(":")[0] for v in denied] == ["policy.yaml"]
        assert str(box.site.appliance.paths.run.parent) not in answer.text


@pytest.mark.parametrize("name", ["m\x1b[31m", "m\u202e", "m" * 300, "m\n", "\u0000m", ""])
async def test_a_models_name_from_a_client_is_shown_harmless_and_counted_nowhere(name: str) -> None:
    async with appliance() as box:
        answer = await box.http().post(CHAT, json=chat(name))
        assert answer.status_code in (400, 404)
        message = answer.json()["error"]["message"]
        assert message.isprintable() and len(message) < 300
        metrics = await admin(box, "/metrics")
        assert name == "" or f'"{name}"'.encode() not in metrics


def key(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def opened(box: Box, data: bytes) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", box.server.port)
    writer.write(data)
    return writer


async def admin(box: Box, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", box.server.admin_port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read(-1)
    writer.close()
    return answer
