"""nginx in front, with TLS, as the example has it."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import HERE, KEY, run, until

pytestmark = pytest.mark.full

TLS = Path("/etc/nginx/tls")
HOST = "conductor.example"


@pytest.fixture(scope="module", autouse=True)
def front() -> Iterator[None]:
    TLS.mkdir(parents=True, exist_ok=True)
    run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"),
        *("-keyout", TLS / "conductor.key", "-out", TLS / "conductor.crt"),
    )
    run("usermod", "-aG", "conductor-clients", "www-data")
    shutil.copy(HERE / "nginx.conf", "/etc/nginx/conf.d/conductor.conf")
    Path("/etc/nginx/sites-enabled/default").unlink(missing_ok=True)
    run("nginx", "-t")
    run("systemctl", "restart", "nginx.service")
    until(lambda: asked("GET", "/v1/models")[0] == 200, 10)
    yield
    run("systemctl", "stop", "nginx.service")


def asked(method: str, path: str, body: object = None, host: str = HOST) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(TLS / "conductor.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", 443, timeout=30, context=context)
    connection._context.check_hostname = False  # type: ignore[attr-defined]
    headers = {"Host": host, "Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def chat(**more: object) -> dict[str, object]:
    return {"model": "own", "messages": [{"role": "user", "content": "Hello?"}], **more}


def test_a_request_is_answered_over_tls() -> None:
    status, text = asked("POST", "/v1/chat/completions", chat())
    assert status == 200
    assert json.loads(text)["choices"]


def test_a_stream_comes_through_unbuffered_to_its_end() -> None:
    status, text = asked("POST", "/v1/chat/completions", chat(stream=True))
    assert status == 200
    assert text.rstrip().endswith("data: [DONE]")


def test_metrics_and_administration_are_not_behind_it() -> None:
    assert asked("GET", "/metrics")[0] == 404
    assert asked("GET", "/v1/policy")[0] == 404


def test_old_versions_of_tls_are_refused() -> None:
    said = run(
        *("openssl", "s_client", "-connect", "127.0.0.1:443", "-tls1_1", "-brief"), check=False
    )
    assert "CONNECTION ESTABLISHED" not in said
