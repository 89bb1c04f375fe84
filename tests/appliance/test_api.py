"""The API's surface: routes, keys, headers, models, explanations, metrics, drain, budgets."""

from __future__ import annotations

import asyncio
import hashlib
import re

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from support.appliance import CLEAN, IBAN, Box, appliance, until
from support.clients import http_client
from support.configs import KEY, TRUSTED_KEY, Tree, local_worker, remote_worker
from support.rawpeer import Peer, plain, serving
from support.wire import (
    CHAT,
    audit,
    chat,
    counted,
    ended,
    exchange,
    head,
    is_envelope,
    metrics,
    post,
)

FREE = [local_worker("local-a", port=0, model="echo")]
DEAR = {"input_usd_per_mtok": 1000.0, "output_usd_per_mtok": 4000.0}
CONDUCTOR = ["conductor", "conductor-local", "conductor-thrifty", "conductor-quality"]


def key(name: str, secret: str, **more: object) -> Tree:
    return {"id": name, "sha256": hashlib.sha256(secret.encode()).hexdigest(), **more}


def slow(milliseconds: int = 60_000, **more: object) -> list[Tree]:
    return [local_worker("local-a", port=0, model=f"slow-first-byte-{milliseconds}", **more)]


PATHS = (
    "/",
    "/nope",
    "/v1",
    "/v1/embeddings",
    "/v1//models",
    "/v1/models/../../x",
    "/v1/chat/completions/extra",
    "/v1/é",
    "/%00",
    "/metrics",
    "/status",
)

# -- routes -------------------------------------------------------------------------------------


async def test_the_set_of_addresses_is_closed_and_every_error_is_an_envelope() -> None:
    async with appliance(workers=FREE) as box:
        http = box.http()
        for path in PATHS:
            for method in ("GET", "POST", "DELETE", "OPTIONS"):
                assert is_envelope(await http.request(method, path), 404, "not_found"), path
        assert box.local.requests == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("DELETE", CHAT + "/", "POST"),
        ("GET", "/v1/plan", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/v1/models/local-a", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PATCH", "/readyz/", "GET, HEAD"),
    ],
)
async def test_a_wrong_verb_is_told_which_ones_are_right(
    method: str, path: str, allowed: str
) -> None:
    async with appliance(workers=FREE) as box:
        response = await box.http().request(method, path)
        assert is_envelope(response, 405, "method_not_allowed")
        assert response.headers["allow"] == allowed


async def test_a_trailing_slash_is_the_same_address() -> None:
    async with appliance(workers=FREE) as box:
        http = box.http()
        for path in ("/v1/models", "/v1/models/local-a", "/healthz", "/readyz"):
            assert (await http.get(path + "/")).json() == (await http.get(path)).json()
        for path in (CHAT + "/", "/v1/plan/"):
            assert (await http.post(path, json=chat())).status_code == 200


async def test_options_needs_no_key_and_names_the_verbs() -> None:
    async with appliance(workers=FREE) as box, http_client(base_url=box.url) as http:
        for path, allowed in {
            CHAT: "OPTIONS, POST",
            "/v1/models": "GET, HEAD, OPTIONS",
            "/v1/models/a/b": "GET, HEAD, OPTIONS",
            "/healthz": "GET, HEAD, OPTIONS",
        }.items():
            response = await http.options(path)
            assert (response.status_code, response.content) == (204, b"")
            assert response.headers["allow"] == allowed
            assert response.headers["x-request-id"].startswith("req_")


async def test_head_is_get_without_its_body() -> None:
    async with appliance(workers=FREE) as box:
        http = box.http()
        for path, status in (("/v1/models", 200), ("/healthz", 200), ("/v1/models/none", 404)):
            got, headed = await http.get(path), await http.head(path)
            assert (headed.status_code, headed.content) == (status, b"")
            assert headed.headers["content-length"] == got.headers["content-length"]


# -- headers ------------------------------------------------------------------------------------


async def test_every_answer_has_its_own_request_id_and_tells_no_version_of_the_server() -> None:
    async with appliance(workers=FREE) as box:
        http, ids = box.http(), set()
        answers = [
            await http.get("/v1/models"),
            await http.get("/healthz"),
            await http.get("/readyz"),
            await http.get("/nope"),
            await http.put("/v1/models"),
            await http.options(CHAT),
            await http.get("/v1/models", headers={"Authorization": "Bearer wrong"}),
            await http.post(CHAT, content=b"{"),
            await http.post(CHAT, json=chat()),
            await http.post(CHAT, json=chat(stream=True)),
            await http.post("/v1/plan", json=chat()),
        ]
        for response in answers:
            ids.add(response.headers["x-request-id"])
            assert response.headers["openai-version"] == "2020-10-01"
            assert re.fullmatch(r"[0-9]+", response.headers["openai-processing-ms"])
            assert response.headers["server"] == "conductor"
            assert "content-encoding" not in response.headers
        assert len(ids) == len(answers)


async def test_the_official_client_sees_the_request_id_on_answers_and_errors() -> None:
    async with appliance(workers=FREE) as box:
        client = box.client()
        answer = await client.chat.completions.create(**chat())
        assert answer._request_id is not None
        assert audit(box, "decision")[0]["request_id"] == answer._request_id
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(**chat("gpt-9"))
        assert missing.value.request_id is not None
        assert missing.value.request_id.startswith("req_")


async def test_a_clients_own_request_id_is_logged_beside_ours_and_never_sent_back() -> None:
    async with appliance(workers=FREE) as box:
        http = box.http()
        with capture_logs() as lines:
            for given in ("ticket-42", "x" * 512, "x" * 513, "caf\xe9", "tab\there"):
                headers = {b"X-Client-Request-Id": given.encode("latin-1")}
                response = await http.post(CHAT, json=chat(), headers=headers)
                assert response.headers["x-request-id"].startswith("req_")
                assert given.encode("latin-1") not in repr(response.headers.raw).encode("latin-1")
        logged = [line["client_request"] for line in lines if line["event"] == "request"]
        assert logged == ["ticket-42", "x" * 512, None, None, None]


async def test_nothing_of_the_callers_headers_reaches_a_worker() -> None:
    async with appliance(workers=FREE) as box:
        odd = {"Cookie": "c00kie", "x-api-key": "k3y", "X-Forwarded-For": "10.9.9.9",
               "x-conductor-model": "sm0ggled", "OpenAI-Organization": "0rg"}  # fmt: skip
        response = await box.http().post(CHAT, json=chat(), headers=odd)
        assert response.headers["x-conductor-model"] == "local-a"
        for value in (KEY, *odd.values()):
            assert value.encode() not in box.local.received


# -- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY}x",
     f"Bearer {KEY} {KEY}", "Bearer " + "x" * 4000, "Bearer caf\xe9"],
)  # fmt: skip
async def test_without_a_good_key_the_answer_is_401_and_says_how(header: str | None) -> None:
    async with appliance(workers=FREE) as box, http_client(base_url=box.url) as http:
        headers = {} if header is None else {b"Authorization": header.encode("latin-1")}
        for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("POST", "/v1/plan")):
            response = await http.request(method, path, headers=headers, content=b"{}")
            assert is_envelope(response, 401, "invalid_api_key")
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.json()["error"]["type"] == "invalid_request_error"
            assert KEY not in response.text


async def test_the_official_client_raises_its_authentication_error() -> None:
    async with appliance(workers=FREE) as box:
        with pytest.raises(openai.AuthenticationError) as refused:
            await box.ask(key="wrong")
        assert refused.value.code == "invalid_api_key"
        assert box.local.requests == []


async def test_a_key_uses_the_models_it_is_given_and_sees_no_other() -> None:
    keys = [key("all", KEY), key("few", "few-key", models=["conductor-local", "team/small"])]
    workers = [*FREE, local_worker("team/small", port=0, model="echo")]
    async with appliance(workers=workers, appliance={"keys": keys}) as box:
        few = box.client("few-key")
        assert [m.id async for m in few.models.list()] == ["conductor-local", "team/small"]
        for name in ("conductor", "local-a"):
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await few.chat.completions.create(**chat(name))
            assert (refused.value.code, refused.value.type) == (
                "model_not_allowed",
                "permission_error",
            )
            assert refused.value.response.headers["x-should-retry"] == "false"
            with pytest.raises(openai.NotFoundError):
                await few.models.retrieve(name)
        assert box.local.requests == []
        assert (await few.chat.completions.create(**chat("team/small"))).model == "team/small"


# -- models -------------------------------------------------------------------------------------


async def test_models_are_listed_with_all_that_clients_read() -> None:
    async with appliance(with_egress=False) as box:
        models = [model async for model in box.client().models.list()]
        assert [m.id for m in models] == [*CONDUCTOR, "local-a", "remote-a"]
        for model in models:
            assert model.object == "model"
            assert isinstance(model.created, int)
            assert isinstance(model.owned_by, str)
        listed = (await box.http().get("/v1/models")).json()
        assert listed["object"] == "list"


async def test_a_model_id_may_hold_slashes_raw_or_encoded() -> None:
    async with appliance(workers=[local_worker("org/team/m-1", port=0, model="echo")]) as box:
        http = box.http()
        for spelled in ("org/team/m-1", "org%2Fteam%2fm-1", "org%2Fteam%2Fm-1/"):
            response = await http.get(f"/v1/models/{spelled}")
            assert response.json()["id"] == "org/team/m-1", spelled
        assert (await box.client().models.retrieve("org/team/m-1")).id == "org/team/m-1"
        missing = await http.get("/v1/models/org%2Fother")
        assert is_envelope(missing, 404, "model_not_found")
        assert "`org/other`" in missing.json()["error"]["message"]


async def test_an_unknown_model_is_404_in_the_words_that_libraries_match() -> None:
    async with appliance(workers=FREE) as box:
        with pytest.raises(openai.NotFoundError) as missing:
            await box.ask(model="gpt-9")
        error = missing.value.body
        assert isinstance(error, dict)
        text = "The model `gpt-9` does not exist or you do not have access to it."
        assert (error["message"], error["param"]) == (text, "model")
        assert box.local.requests == []


# -- explanations -------------------------------------------------------------------------------


async def test_a_plan_is_explained_without_calling_anyone() -> None:
    async with appliance() as box:
        http = box.http()
        clean = (await http.post("/v1/plan", json=chat("conductor-quality"))).json()
        assert clean["label"] == "internal"
        assert [v["decision"] for v in clean["verdicts"]] == ["allow", "allow"]
        assert clean["candidates"] == ["local-a", "remote-a"]
        assert clean["plan"].count("\n") == 2
        body = {"model": "conductor", "messages": [{"role": "user", "content": f"Pay {IBAN}"}]}
        held = await http.post("/v1/plan", json={**body, "fallbacks": ["remote-a"]})
        told = held.json()
        assert told["label"] == "confidential+payment+pii"
        assert told["detectors"][0]["id"] == "iban"
        assert {v["worker"]: v["decision"] for v in told["verdicts"]} == {
            "local-a": "allow",
            "remote-a": "deny",
        }
        assert told["plan"].startswith("local-a q")
        assert told["ignored_fields"] == ["fallbacks"]
        refused = (await http.post("/v1/plan", json={**body, "model": "remote-a"})).json()
        assert refused["plan"] is None
        assert refused["refusal"]["code"] == "sensitivity_blocked"
        assert IBAN not in held.text + str(refused)
        assert box.local.connections == box.vendor.connections == []
        assert audit(box, "decision") == []


async def test_an_explanation_checks_key_body_and_model_like_the_real_call() -> None:
    async with appliance(workers=FREE) as box:
        http = box.http()
        plan = "/v1/plan"
        assert is_envelope(await http.post(plan, content=b"nope"), 400, None)
        assert is_envelope(await http.post(plan, json=chat(n=0)), 400, "invalid_value")
        assert is_envelope(await http.post(plan, json=chat("gpt-9")), 404, "model_not_found")
        declared = {"x-conductor-label": "restricted"}
        response = await http.post(plan, json=chat(), headers=declared)
        assert is_envelope(response, 403, "label_not_allowed")
        trusted = await box.http(TRUSTED_KEY).post(plan, json=chat(), headers=declared)
        assert trusted.json()["label"] == "restricted"


# -- health and metrics -------------------------------------------------------------------------


async def test_health_needs_no_key_and_never_waits_at_the_door() -> None:
    keys = [key("one", KEY, max_in_flight=1)]
    async with appliance(workers=slow(), appliance={"keys": keys}) as box:
        waiting = asyncio.create_task(box.ask())
        await until(lambda: box.local.requests)
        async with http_client(base_url=box.url) as http:
            for path in ("/healthz", "/readyz", "/healthz/", "/readyz/"):
                assert (await http.get(path)).status_code == 200
        waiting.cancel()


async def test_readiness_fails_with_its_reasons_when_no_worker_can_be_reached() -> None:
    async with appliance(workers=[local_worker("local-a", port=9)]) as box:
        response = await box.http().post(CHAT, json=chat())
        assert is_envelope(response, 503, "no_local_backend")
        assert int(response.headers["retry-after"]) >= 1
        ready = await box.http().get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert ready.json()["reasons"] == ["no worker can be reached"]
        assert (await box.http().get("/healthz")).status_code == 200


async def test_status_and_metrics_are_on_the_admin_listener_alone() -> None:
    async with appliance(workers=FREE) as box, http_client(base_url=box.admin_url) as admin:
        status = (await admin.get("/status")).json()
        assert status["ready"] is True
        assert [worker["id"] for worker in status["workers"]] == ["local-a"]
        assert status["keys"][0] == {"id": "app", "spent_usd": 0.0, "remaining_usd": None}
        assert "127.0.0.1" not in str(status)
        for path in ("/healthz", "/readyz", "/metrics"):
            response = await admin.get(path)
            assert (response.status_code, response.headers["server"]) == (200, "conductor")
        assert is_envelope(await admin.get("/nope"), 404, "not_found")
        assert is_envelope(await admin.post("/metrics"), 405, "method_not_allowed")
        assert is_envelope(await admin.post(CHAT, json=chat()), 404, "not_found")


async def test_what_clients_make_up_does_not_become_a_label() -> None:
    async with appliance(workers=FREE) as box:
        http = box.http()
        await http.post(CHAT, json=chat())
        before = set(await metrics(box))
        for number in range(200):
            await http.post(CHAT, json=chat(f"made-up-{number}"))
            await http.get(f"/scan/{number}.php")
        found = await metrics(box)
        new = set(found) - before
        assert not [labels for _, labels in new if re.search(r"made|scan", str(labels))]
        assert len({labels for name, labels in new if name == "conductor_requests_total"}) == 1
        assert len(new) < 60
        failed = await counted(box, "conductor_requests_total", model="other", status="404")
        assert failed == 400


async def test_every_metric_has_a_help_text_and_parses() -> None:
    async with appliance(workers=FREE) as box:
        await box.ask()
        async with http_client() as client:
            response = await client.get(f"{box.admin_url}/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = list(text_string_to_metric_families(response.text))
        assert len(families) > 15
        assert all(family.documentation for family in families)


# -- malformed HTTP -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"SECRETWORD\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01SECRETWORD\r\n\r\n",
        b"GET /SECRETWORD HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nSECRETWORD\x00: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nSECRETWORD : y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"SECRETWORD" * 2000 + b"\r\n\r\n",
        b"GET /" + b"SECRETWORD" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        head(CHAT, "Content-Length: 3", "Transfer-Encoding: chunked", "X: SECRETWORD"),
        head(CHAT, "Content-Length: 3", "Content-Length: 4", "X: SECRETWORD"),
        head(CHAT, "Content-Length: -1SECRETWORD"),
        head(CHAT, "Transfer-Encoding: SECRETWORD"),
        head(CHAT, "Transfer-Encoding: chunked") + b"SECRETWORD\r\n",
    ],
)
async def test_bytes_that_are_no_request_get_an_envelope_that_does_not_repeat_them(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with appliance(workers=FREE) as box:
        with capture_logs() as lines:
            received = await exchange(box, sent)
        top, _, body = received.partition(b"\r\n\r\n")
        assert b" 400 Bad Request" in top.split(b"\r\n")[0], received
        for header in (b"x-request-id: req_", b"Content-Type: application/json"):
            assert header in top
        assert body.startswith(b'{"error":{"message":"')
        assert b'"type":"invalid_request_error"' in body
        told = received + repr(lines).encode() + caplog.text.encode()
        assert b"SECRETWORD" not in told
        assert b"aiohttp" not in received
        assert (await box.http().get("/healthz")).status_code == 200


async def test_a_body_whose_framing_breaks_off_is_the_senders_fault() -> None:
    async with appliance(workers=FREE) as box:
        chunked = head(CHAT, "Transfer-Encoding: chunked")
        received = await exchange(box, chunked, b"5\r\nhello\r\n", b"zz\r\n")
        assert received.startswith(b"HTTP/1.1 400 "), received
        assert b'{"error":{"message":"The request body' in received


async def test_an_unknown_expectation_is_refused_in_an_envelope_and_the_known_one_is_met() -> None:
    async with appliance(workers=FREE) as box:
        response = await box.http().post(CHAT, json=chat(), headers={"Expect": "the impossible"})
        assert is_envelope(response, 400, None)
        body = b'{"model":"conductor","messages":[{"role":"user","content":"hello"}]}'
        received = await exchange(box, post(body, "Expect: 100-continue"))
        assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")


# -- draining -----------------------------------------------------------------------------------


async def test_a_draining_appliance_finishes_what_runs_and_sends_others_away() -> None:
    answer = asyncio.Event()

    async def held(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.read_request(reader)
        await answer.wait()
        writer.write(plain())
        await peer.wait_hang_up(reader)

    async with (
        serving(held, unix=True) as peer,
        appliance(workers=[local_worker("local-a", unix=peer.endpoint.path)]) as box,
    ):
        running = asyncio.create_task(box.ask())
        await peer.asked.wait()
        draining = asyncio.create_task(box.server.drain(60))
        await asyncio.sleep(0)
        http = box.http()
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["stopping"])
        assert (await http.get("/healthz")).status_code == 200
        for _ in range(2):
            refused = await http.post(CHAT, json=chat())
            assert is_envelope(refused, 503, "overloaded")
            assert refused.headers["connection"] == "close"
            assert int(refused.headers["retry-after"]) >= 1
        assert not draining.done()
        answer.set()
        assert (await running).choices[0].finish_reason == "stop"
        await draining
        assert len(peer.bodies) == 1


async def test_a_stream_that_outlives_the_drain_ends_with_an_error_and_no_done() -> None:
    workers = [local_worker("local-a", port=0, model="stall-mid-stream")]
    async with appliance(workers=workers) as box:
        got = bytearray()

        async def read() -> None:
            async with box.http().stream("POST", CHAT, json=chat(stream=True)) as response:
                assert response.status_code == 200
                with pytest.raises(httpx.RemoteProtocolError):  # no end of the body either
                    async for data in response.aiter_raw():
                        got.extend(data)

        reading = asyncio.create_task(read())
        await until(lambda: b"simulated" in got)
        await box.server.drain(0.1)
        await reading
        assert b'data: {"error":{"message":"The appliance is stopping."' in got
        assert b"[DONE]" not in got
        assert (await ended(box))[0]["outcome"] == "aborted"
        await until(lambda: box.local.requests[0].aborted)


async def test_a_plain_request_that_outlives_the_drain_is_told_to_go_elsewhere() -> None:
    async with appliance(workers=slow()) as box:
        running = asyncio.create_task(box.http().post(CHAT, json=chat()))
        held = asyncio.create_task(box.http().post(CHAT, json=chat(stream=True)))
        await until(lambda: len(box.local.requests) == 2)
        await box.server.drain(0.1)
        for response in (await running, await held):
            assert is_envelope(response, 503, "overloaded")
            assert response.headers["connection"] == "close"
            assert "retry-after" in response.headers
        assert box.server.door.inside == 0


# -- limits of keys and requests ----------------------------------------------------------------


async def test_a_keys_daily_money_is_a_quota_that_clients_do_not_retry() -> None:
    keys = [key("poor", KEY, budget_usd_per_day=0.05)]
    limits = {"max_cost_usd": 0.03}
    workers = [remote_worker("remote-a", "{vendor}", model="echo", price=DEAR)]
    async with appliance(workers=workers, appliance={"keys": keys, "limits": limits}) as box:
        client = box.client(max_retries=3)
        asked = 0
        with pytest.raises(openai.RateLimitError) as used_up:
            while asked < 20:
                await client.chat.completions.create(**chat(max_tokens=2))
                asked += 1
        assert (used_up.value.code, used_up.value.type) == ("insufficient_quota",) * 2
        assert used_up.value.response.headers["x-should-retry"] == "false"
        assert len(box.vendor.requests) == asked
        assert 0 < asked < 20
        refused = await counted(box, "conductor_requests_total", status="429")
        assert refused == 1  # the client did not come again


@pytest.mark.parametrize(
    "limits",
    [{"max_tokens": 1}, {"max_cost_usd": 0.0}, {"max_cost_usd": 0.001}],
)
async def test_a_request_beyond_its_own_limits_is_refused_before_anything_is_sent(
    limits: Tree,
) -> None:
    workers = [remote_worker("remote-a", "{vendor}", model="echo", price=DEAR)]
    async with appliance(workers=workers, appliance={"limits": limits}) as box:
        with pytest.raises(openai.RateLimitError) as refused:
            await box.ask()
        assert refused.value.code == "insufficient_quota"
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert box.vendor.connections == []


async def test_calls_are_counted_over_steps_and_fallbacks_of_one_request() -> None:
    workers = [local_worker(f"local-{i}", port=0, model="status-500") for i in range(4)]
    async with appliance(workers=workers, appliance={"limits": {"max_calls": 2}}) as box:
        with pytest.raises(openai.RateLimitError) as refused:
            await box.ask()
        assert refused.value.code == "insufficient_quota"
        assert len(box.local.requests) == 2


async def test_a_worker_is_asked_for_no_more_tokens_than_the_limits_leave() -> None:
    limits = {"max_tokens": 500}
    async with appliance(workers=FREE, appliance={"limits": limits}) as box:
        await box.ask(max_tokens=100_000)
        assert 0 < box_body(box)["max_tokens"] < 500
        await box.ask(max_tokens=7)
        assert box_body(box)["max_tokens"] == 7


async def test_a_keys_requests_under_way_are_bounded_and_another_keys_are_not() -> None:
    keys = [key("one", KEY, max_in_flight=2), key("two", "other-key")]
    async with appliance(workers=slow(), appliance={"keys": keys}) as box:
        tasks = [asyncio.create_task(box.ask()) for _ in range(2)]
        await until(lambda: len(box.local.requests) == 2)
        refused = await box.http().post(CHAT, json=chat())
        assert is_envelope(refused, 429, "rate_limit_exceeded")
        assert refused.json()["error"]["type"] == "requests"
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-ratelimit-limit-requests"] == "2"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert refused.headers["x-ratelimit-reset-requests"] == "1s"
        other = asyncio.create_task(box.ask(CLEAN, key="other-key"))
        await until(lambda: len(box.local.requests) == 3)
        for task in (*tasks, other):
            task.cancel()
        await asyncio.gather(*tasks, other, return_exceptions=True)
        await until(lambda: box.server.door.inside == 0)
        listed = await box.http().get("/v1/models")
        assert listed.status_code == 200


def box_body(box: Box) -> Tree:
    import orjson

    body: Tree = orjson.loads(box.local.requests[-1].body)
    return body
