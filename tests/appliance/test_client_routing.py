"""No field or header by which other gateways let a client choose a route moves a secret, and none
goes along with what may leave.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from support.appliance import IBAN, LOCAL, REMOTE, Box, appliance
from support.leaks import (
    CONDUCTORS,
    Untouched,
    only_remote_is_good,
)
from support.places import user

ELSEWHERE = "http://127.0.0.1:9/v1"
ROUTING: dict[str, Any] = {
    "fallbacks": [REMOTE, {"model": REMOTE}],
    "default_fallbacks": [REMOTE],
    "context_window_fallbacks": [{"conductor": [REMOTE]}],
    "content_policy_fallbacks": [{"conductor": [REMOTE]}],
    "models": [REMOTE],
    "route": "fallback",
    "provider": {"order": ["simulated"], "allow_fallbacks": True},
    "providers": ["simulated"],
    "plugins": [{"id": "web"}],
    "transforms": ["middle-out"],
    "preset": "frontier",
    "api_base": ELSEWHERE,
    "base_url": ELSEWHERE,
    "api_key": "sk-their-own",
    "api_type": "openai",
    "custom_llm_provider": "openai",
    "litellm_params": {"model": REMOTE, "api_base": ELSEWHERE},
    "litellm_metadata": {"tags": ["remote"]},
    "model_list": [{"model_name": "conductor", "litellm_params": {"model": REMOTE}}],
    "extra_headers": {"x-conductor-label": "public"},
    "extra_body": {"model": REMOTE},
    "headers": {"host": "vendor.invalid"},
    "mock_response": "leaked",
    "num_retries": 9,
    "tags": ["remote"],
    "guardrails": [],
    "targets": [{"provider": "openai"}],
    "strategy": {"mode": "fallback"},
    "config": {"strategy": {"mode": "fallback"}},
    "worker": REMOTE,
    "workers": [REMOTE],
    "destination": "frontier",
    "label": "public",
    "clearance": "restricted",
    "permit": "e30.e30",
    "plan": f"{REMOTE} [Q] -",
    "conductor": {"worker": REMOTE, "label": "public"},
    "conductor_label": "public",
    "deployment_id": REMOTE,
    "kv_transfer_params": {"do_remote_prefill": True, "remote_host": "127.0.0.1"},
    "web_search_options": {},
    "store": True,
    "service_tier": "flex",
    "cache": {"no-cache": True},
    "tensorzero::variant_name": REMOTE,
    "hf_model": REMOTE,
}
HEADERS: dict[str, str] = {
    "x-conductor-model": REMOTE,
    "x-conductor-worker": REMOTE,
    "x-conductor-permit": "e30.e30",
    "x-conductor-destination": "frontier",
    "x-conductor-declassify": "true",
    "x-conductor-mode": "connected",
    "x-portkey-provider": "openai",
    "x-portkey-config": '{"targets":[{"provider":"openai"}]}',
    "x-portkey-custom-host": ELSEWHERE,
    "x-portkey-virtual-key": "vk",
    "helicone-target-url": ELSEWHERE,
    "helicone-openai-api-base": ELSEWHERE,
    "helicone-fallbacks": f'[{{"target-url":"{ELSEWHERE}"}}]',
    "x-litellm-api-base": ELSEWHERE,
    "x-litellm-tags": "remote",
    "x-litellm-enable-message-redaction": "false",
    "litellm-disable-guardrails": "true",
    "openai-organization": "org",
    "openai-project": "proj",
    "api-key": "sk-their-own",
    "x-model": REMOTE,
    "x-provider": "openai",
    "x-target-url": ELSEWHERE,
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-host": "vendor.invalid",
    "x-forwarded-proto": "https",
    "x-original-url": f"/v1/models/{REMOTE}",
    "x-rewrite-url": "/v1/plan",
    "x-http-method-override": "GET",
    "forwarded": "for=127.0.0.1;host=vendor.invalid",
    "via": "1.1 vendor.invalid",
    "host": "vendor.invalid",
    "x-envoy-upstream-rq-timeout-ms": "1",
    "x-request-id": "vendor",
    "proxy-authorization": "Basic e30=",
    "x-llm-d-model": REMOTE,
    "x-gateway-destination-endpoint": "127.0.0.1:9",
    "x-prefiller-host-port": "127.0.0.1:9",
    "x-data-parallel-host-port": "127.0.0.1:9",
    "x-session-id": "1",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncIterator[Box]:
    async with appliance(workers=only_remote_is_good()) as started:
        yield started


@pytest.mark.asyncio(loop_scope="module")
async def test_no_field_of_any_gateway_moves_a_secret(box: Box) -> None:
    untouched = Untouched(box)
    bodies = [{name: value} for name, value in ROUTING.items()] + [ROUTING]
    async with box.http() as http:
        for fields in bodies:
            for stream in (False, True):
                body = {"model": "conductor", **user(IBAN), **fields, "stream": stream}
                answer = await http.post("/v1/chat/completions", json=body)
                answered = answer.headers.get("x-conductor-model")
                assert (list(fields), answered, bool(untouched)) == (list(fields), LOCAL, True)


@pytest.mark.asyncio(loop_scope="module")
async def test_no_header_of_any_gateway_moves_a_secret(box: Box) -> None:
    untouched = Untouched(box)
    sets = [{name: value} for name, value in HEADERS.items()] + [HEADERS]
    async with box.http() as http:
        for headers in sets:
            body = {"model": "conductor-quality", **user(IBAN)}
            answer = await http.post("/v1/chat/completions", json=body, headers=headers)
            answered = answer.headers.get("x-conductor-model")
            assert (list(headers), answered, bool(untouched)) == (list(headers), LOCAL, True)


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_of_a_client_s_fields_or_headers_goes_along_with_what_may_leave(
    box: Box,
) -> None:
    start = len(box.vendor.received)
    body = {"model": "conductor", **user("Hello"), **ROUTING, "web_search_options": None}
    async with box.http() as http:
        answer = await http.post("/v1/chat/completions", json=body, headers=HEADERS)
    assert answer.headers["x-conductor-model"] == REMOTE
    request = box.vendor.requests[-1]
    assert {name.lower() for name, _ in request.headers} == {
        "host", "user-agent", "accept", "accept-encoding", "authorization", "content-type",
        "content-length",
    }  # fmt: skip
    sent = box.vendor.received[start:]
    for theirs in (b"their-own", b"vendor.invalid", b"127.0.0.1:9", b"public", b"portkey"):
        assert theirs not in sent


@pytest.mark.asyncio(loop_scope="module")
async def test_explaining_a_plan_calls_nobody(box: Box) -> None:
    untouched, local = Untouched(box), len(box.local.received)
    async with box.http() as http:
        for model in (*CONDUCTORS, REMOTE):
            for text in (IBAN, "Hello"):
                await http.post("/v1/plan", json={"model": model, **user(text)})
    assert untouched
    assert len(box.local.received) == local
