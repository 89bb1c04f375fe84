"""Labels that a client declares: they keep text here, they lower nothing, and one that cannot be
honoured stops the request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from support.appliance import IBAN, LOCAL, REMOTE, Box, appliance
from support.configs import KEY, TRUSTED_KEY
from support.leaks import (
    Untouched,
    only_remote_is_good,
    send,
)
from support.places import user


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncIterator[Box]:
    async with appliance(workers=only_remote_is_good()) as started:
        yield started


async def declare(box: Box, labels: list[str], key: str) -> httpx.Response:
    headers = [("x-conductor-label", label) for label in labels]
    async with box.http(key) as http:
        return await http.post(
            "/v1/chat/completions", json={"model": "conductor", **user("Hello")}, headers=headers
        )


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("label", ["confidential", "internal+pii", "public+secret", "restricted"])
async def test_a_declared_label_keeps_harmless_text_here(box: Box, label: str) -> None:
    untouched = Untouched(box)
    answer = await declare(box, [label], TRUSTED_KEY)
    assert answer.headers["x-conductor-model"] == LOCAL
    assert untouched


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "labels",
    [
        ["top-secret"],
        [""],
        ["confidential+"],
        ["CONFIDENTIAL"],
        ["confidential pii"],
        ["confidential,public"],
        ["public", "confidential"],
        ["confidential", "public"],
        ["public", ""],
        [f"confidential+{IBAN}"],
    ],
)
async def test_a_label_that_cannot_be_read_sends_nothing_anywhere(
    box: Box, labels: list[str]
) -> None:
    untouched, local = Untouched(box), len(box.local.received)
    answer = await declare(box, labels, TRUSTED_KEY)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "label_not_allowed"
    assert answer.headers["x-should-retry"] == "false"
    assert IBAN not in answer.text
    assert untouched
    assert len(box.local.received) == local


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("label", ["public", "confidential", "restricted", "nonsense"])
async def test_a_key_that_may_not_declare_labels_is_told_so(box: Box, label: str) -> None:
    untouched, local = Untouched(box), len(box.local.received)
    answer = await declare(box, [label], KEY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "label_not_allowed")
    assert untouched
    assert len(box.local.received) == local


@pytest.mark.asyncio(loop_scope="module")
async def test_declaring_public_lowers_nothing(box: Box) -> None:
    untouched = Untouched(box)
    async with box.client(TRUSTED_KEY, default_headers={"x-conductor-label": "public"}) as trusted:
        assert await send(trusted, user(IBAN), "conductor") == LOCAL
        assert await send(trusted, user(IBAN), REMOTE) == "403 sensitivity_blocked"
    assert untouched
