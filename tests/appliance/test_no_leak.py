"""Nothing sensitive reaches a remote worker, however it is dressed, asked for or fallen back to.

Every request here would go out if its secret were not seen: the remote worker is the only good one,
and the harmless twin of each request does go out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from conductor.core import TcpEndpoint, WorkerLimits
from support.appliance import IBAN, LOCAL, REMOTE, Box, appliance
from support.configs import Tree, local_worker, remote_worker
from support.leaks import (
    CONDUCTORS,
    GOOD,
    Untouched,
    audit_bytes,
    logged,
    only_remote_is_good,
    public_bytes,
    send,
    traces,
)
from support.places import HARMLESS, PLACES, SECRETS, user


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncIterator[Box]:
    async with appliance(workers=only_remote_is_good()) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(box: Box) -> AsyncOpenAI:
    return box.client()


# -- places and spellings ---------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("place", PLACES)
async def test_a_secret_stays_here_wherever_it_stands(
    box: Box, client: AsyncOpenAI, place: str
) -> None:
    untouched = Untouched(box)
    for name, secret in SECRETS.items():
        for model in CONDUCTORS:
            answered = await send(client, PLACES[place](secret), model, stream=model != "conductor")
            assert (name, answered, bool(untouched)) == (name, LOCAL, True)
    assert await send(client, PLACES[place](HARMLESS), "conductor") == REMOTE
    assert not untouched


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("place", PLACES)
async def test_the_vendor_by_name_is_refused_for_good(
    box: Box, client: AsyncOpenAI, place: str
) -> None:
    untouched = Untouched(box)
    for secret in SECRETS.values():
        for stream in (False, True):
            told = await send(client, PLACES[place](secret), REMOTE, stream=stream)
            assert (told, bool(untouched)) == ("403 sensitivity_blocked", True)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_refusal_tells_official_clients_not_to_try_again(box: Box) -> None:
    untouched = Untouched(box)
    body = {"model": REMOTE, **user(IBAN)}
    async with box.http() as http:
        refused = await http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 403
    assert refused.json()["error"]["type"] == "policy_violation"
    assert refused.headers["x-should-retry"] == "false"
    async with box.client(max_retries=5) as eager:
        assert await send(eager, user(IBAN), REMOTE) == "403 sensitivity_blocked"
    assert untouched


@pytest.mark.asyncio(loop_scope="module")
async def test_an_unreadable_picture_stays_here(box: Box, client: AsyncOpenAI) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    message = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}
    untouched = Untouched(box)
    assert await send(client, {"messages": [message]}, "conductor") == LOCAL
    assert await send(client, {"messages": [message]}, REMOTE) == "403 sensitivity_blocked"
    assert untouched


# -- retry and fallback -----------------------------------------------------------------------

FAULTS = (
    "status-500",
    "status-503",
    "status-429-retry-1",
    "status-401",
    "status-404",
    "context-length",
    "cut-before-head",
    "cut-before-body",
    "cut-mid-stream",
    "end-mid-stream",
    "empty",
    "error-in-band",
    "malformed-json",
    "no-choices",
    "stall",
)


def falling_back(fault: str) -> list[Tree]:
    """Two local workers that fail so, both preferred to the remote one, which is well."""
    limits = {"first_byte_s": 0.2, "idle_s": 0.2}
    locals_ = [
        local_worker(name, port=0, model=fault, card=GOOD, limits=limits)
        for name in (LOCAL, "local-b")
    ]
    roomy = {"context_tokens": 2 * WorkerLimits.context_tokens}
    return [*locals_, remote_worker(REMOTE, "{vendor}", model="ok", card=GOOD, limits=roomy)]


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_failure_at_home_sends_a_secret_abroad(fault: str) -> None:
    async with appliance(workers=falling_back(fault)) as box:
        client = box.client()
        for stream in (False, True, False):
            told = await send(client, user(f"Pay {IBAN}"), "conductor-quality", stream=stream)
            assert told[:3] in ("400", "502", "503", "504") or told == "broken off"
        assert len(box.vendor.connections) == 0
        assert box.vendor.received == b""
        # The twin proves that a fallback was there to be taken.
        assert await send(client, user("Hello"), "conductor") == REMOTE


async def test_when_everything_at_home_is_down_retry_after_tells_the_truth() -> None:
    async with appliance(workers=falling_back("ok")) as box:
        endpoint = box.site.workers[0].endpoint
        assert isinstance(endpoint, TcpEndpoint)
        await box.local.close()
        async with box.http() as http:

            async def refused_for() -> int:
                refused = await http.post("/v1/chat/completions", json=body)
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "no_local_backend"
                return int(refused.headers["retry-after"])

            body = {"model": "conductor", **user(IBAN)}  # one step, which asks both in turn
            for _ in range(3):
                wait_s = await refused_for()
            await asyncio.sleep(wait_s)
            longer_s = await refused_for()  # it was let through, and found everything still down
            assert longer_s > wait_s
            await box.local.start_tcp(port=endpoint.port)
            assert await refused_for() == longer_s
            await asyncio.sleep(longer_s)
            answered = await http.post("/v1/chat/completions", json=body)
            assert answered.headers["x-conductor-model"] in (LOCAL, "local-b")
        assert len(box.vendor.connections) == 0


async def test_a_good_remote_worker_that_is_down_does_not_hold_up_what_must_stay_here() -> None:
    workers = only_remote_is_good()
    async with appliance(workers=workers, with_egress=False) as box:
        client = box.client()
        assert await send(client, user("Hello"), "conductor") == LOCAL
        assert await send(client, user(IBAN), "conductor") == LOCAL
        assert len(box.vendor.connections) == 0


# -- traces -----------------------------------------------------------------------------------


async def test_no_secret_is_found_in_audit_logs_metrics_status_or_errors() -> None:
    with logged() as log:
        async with appliance(workers=only_remote_is_good()) as box:
            errors = []
            async with box.http() as http:
                for place in PLACES.values():
                    for secret in SECRETS.values():
                        for model in ("conductor", REMOTE):
                            body = {"model": model, **place(secret)}
                            answer = await http.post("/v1/chat/completions", json=body)
                            if answer.status_code != 200:
                                errors.append(answer.content)
                errors += await _refusals(http)
            where = {**await public_bytes(box), "audit": audit_bytes(box)}
    where |= {"log": log.getvalue().encode(), "errors": b"\n".join(errors)}
    assert [name for name, data in where.items() if len(data) < 20] == []
    for secret in SECRETS.values():
        assert traces(secret, **where) == []


async def _refusals(http: httpx.AsyncClient) -> list[bytes]:
    """Bodies of answers to requests that are wrong in ways that hold a secret."""
    told = []
    for secret in SECRETS.values():
        wrong: list[dict[str, Any]] = [
            {"messages": secret},
            {"messages": [secret]},
            {"messages": [{"role": secret, "content": "x"}]},
            {"messages": [{"role": "user", "content": {secret: 1}}]},
            {**user("x"), "temperature": secret},
            {**user("x"), "response_format": {"type": secret}},
            {**user("x"), "tools": [{"type": "function", "function": {secret: 1}}]},
            {**user("x"), "logit_bias": {secret: secret}},
            {**user("x"), "stream": secret},
        ]
        for body in wrong:
            answer = await http.post("/v1/chat/completions", json={"model": "conductor", **body})
            assert answer.status_code == 400
            told.append(answer.content)
        broken = f'{{"model": "conductor", "messages": "{secret}'.encode()
        told.append((await http.post("/v1/chat/completions", content=broken)).content)
        told.append((await http.get(f"/v1/{secret}")).content)
        for header in ({"Authorization": f"Bearer {secret}"}, {"x-conductor-label": secret}):
            body = {"model": "conductor", **user("x")}
            answer = await http.post("/v1/chat/completions", json=body, headers=header)
            assert answer.status_code in (401, 403)
            told.append(answer.content)
    return told
