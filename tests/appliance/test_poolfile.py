"""`workers.yaml`: how workers are reached, and that none of them is where it should not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conductor.core import (
    Price,
    RemoteEndpoint,
    SecretRef,
    TcpEndpoint,
    UnixEndpoint,
    Worker,
    WorkerLimits,
)
from conductor.errors import ConfigError
from conductor.labels import Clearance
from support.appliance import short_directory
from support.configs import local_worker, overridden, remote_worker, small_site

Tree = dict[str, Any]


def only(directory: Path, worker: Tree, **site: Any) -> Worker:
    """The worker of a site that has no other."""
    (loaded,) = small_site(directory, workers=[worker], **site).workers
    return loaded


def faults_of(directory: Path, *workers: Tree, **site: Any) -> list[tuple[str, str]]:
    try:
        small_site(directory, workers=workers, **site)
    except ConfigError as error:
        assert all(fault.file == f"{directory}/workers.yaml" for fault in error.faults)
        return [(fault.code, fault.message) for fault in error.faults]
    return []


def changed(worker: Tree, **changes: Any) -> Tree:
    return overridden(worker, changes)


LOCAL = local_worker("a", port=8000)
REMOTE = remote_worker("a")
EMBEDDED = changed(LOCAL, tcp=None, model=None, embedded="smollm2-135m")


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:8000", "127.0.0.1", 8000),
        ("127.9.9.9:1", "127.9.9.9", 1),
        ("localhost:8000", "127.0.0.1", 8000),
        ("[::1]:65535", "::1", 65535),
    ],
)
def test_a_tcp_worker_is_on_a_loopback_address(
    tmp_path: Path, address: str, host: str, port: int
) -> None:
    assert only(tmp_path, changed(LOCAL, tcp=address)).endpoint == TcpEndpoint(host, port)


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.5:8000", "example.com:443", "0.0.0.0:80", "127.0.0.1", "127.0.0.1:0"),
        *("127.0.0.1:99999", "127.0.0.1:80/x", "127.0.0.1@evil.com:80", "127.1:80"),
        *("[::ffff:127.0.0.1]:80", "[::1%lo]:80", "[::]:80", "0177.0.0.1:80", "2130706433:80"),
        "localhost.evil.com:80",
    ],
)
def test_a_tcp_worker_anywhere_else_is_refused(tmp_path: Path, address: str) -> None:
    assert [code for code, _ in faults_of(tmp_path, changed(LOCAL, tcp=address))] == [
        "not-loopback"
    ]


def test_a_worker_is_not_the_appliance_itself(tmp_path: Path) -> None:
    api = {"api": {"port": 8000, "admin_port": 8001}}
    assert [code for code, _ in faults_of(tmp_path, LOCAL, appliance=api)] == ["own-port"]


def test_a_unix_worker_stands_below_the_root_of_paths(tmp_path: Path) -> None:
    assert only(tmp_path, local_worker("a", unix="/run/vllm.sock")).endpoint == UnixEndpoint(
        Path("/run/vllm.sock")
    )
    near = only(tmp_path, local_worker("a", unix="vllm.sock", base_path="/api/v2"))
    assert near.endpoint == UnixEndpoint(tmp_path / "vllm.sock", "/api/v2")


def test_an_embedded_worker_has_its_socket_in_the_run_directory() -> None:
    with short_directory() as here:
        worker = only(here, changed(EMBEDDED, threads=3))
    assert worker.endpoint == UnixEndpoint(here / "r" / "workers" / "a.sock")
    assert (worker.model, worker.embedded_model, worker.threads) == (*["smollm2-135m"] * 2, 3)
    assert not worker.remote


def test_a_socket_path_too_long_for_the_kernel_is_refused(tmp_path: Path) -> None:
    long = local_worker("a", unix="/" + "x" * 107)
    assert [code for code, _ in faults_of(tmp_path, long)] == ["bad-value"]
    paths = {"paths": {"run": "y" * 107}}
    assert [code for code, _ in faults_of(tmp_path, EMBEDDED, appliance=paths)] == ["bad-value"]


def test_a_remote_worker_carries_its_key_by_reference_only(tmp_path: Path) -> None:
    worker = only(tmp_path, changed(REMOTE, remote={"base_url": "https://vendor.example/v1/"}))
    key = SecretRef("env", "SIMULATED_VENDOR_KEY")
    assert worker.endpoint == RemoteEndpoint("openai", "https://vendor.example/v1", key)
    assert worker.remote
    assert worker.price == Price(1.0, 4.0)


def test_a_remote_worker_may_leave_its_address_to_its_provider(tmp_path: Path) -> None:
    endpoint = only(tmp_path, changed(REMOTE, remote={"base_url": None})).endpoint
    assert isinstance(endpoint, RemoteEndpoint)
    assert endpoint.base_url is None


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://vendor.example/v1", "not-https"),
        ("http://127.0.0.1.evil.com/v1", "not-https"),
        ("http://localhost:80/v1", "not-https"),
        ("ftp://vendor.example", "bad-value"),
        ("https://user:sk-live-1@vendor.example/v1", "bad-value"),
        ("https://vendor.example/v1?key=sk-live-1", "bad-value"),
        ("https://vendor.example/v1#sk-live-1", "bad-value"),
        ("https://vendor.example:port/v1", "bad-value"),
        ("https://[::1/v1", "bad-value"),
        ("https://vendor.example:99999", "bad-value"),
        ("https://", "bad-value"),
        ("https:///v1", "bad-value"),
        ("https://:443/v1", "bad-value"),
        ("https://vendor.example:0/v1", "bad-value"),
        ("https://a b/v1", "bad-value"),
    ],
)
def test_a_base_url_is_https_and_holds_no_secret(tmp_path: Path, url: str, code: str) -> None:
    found = faults_of(tmp_path, changed(REMOTE, remote={"base_url": url}))
    assert [fault[0] for fault in found] == [code]
    assert "sk-live" not in str(found)


def test_a_worker_narrows_the_clearance_of_its_destination(tmp_path: Path) -> None:
    own = {"level": "confidential", "compartments": ["pii"]}
    assert only(tmp_path, changed(LOCAL, clearance=own)).clearance == Clearance(
        2, frozenset({"pii"})
    )
    wide = {"level": "restricted", "compartments": "all"}
    assert only(tmp_path, changed(REMOTE, clearance=wide)).clearance == Clearance(1)


def test_limits_have_defaults_and_each_can_be_set(tmp_path: Path) -> None:
    assert only(tmp_path, LOCAL).limits == WorkerLimits()
    own: Tree = {
        "max_in_flight": 1,
        "max_queued": 0,
        "queue_wait_s": 0,
        "context_tokens": 2048,
        "max_output_tokens": 100,
        "connect_s": 0.5,
        "first_byte_s": 1,
        "idle_s": 1.5,
        "total_s": 2,
    }
    assert only(tmp_path, changed(LOCAL, limits=own)).limits == WorkerLimits(**own)


def test_how_wordy_a_worker_is_stands_on_its_card_and_is_average_unless_told(
    tmp_path: Path,
) -> None:
    assert only(tmp_path, LOCAL).card.verbosity == 1.0
    assert only(tmp_path, changed(LOCAL, card={"verbosity": 1.8})).card.verbosity == 1.8


@pytest.mark.parametrize(
    ("worker", "code", "words"),
    [
        (changed(LOCAL, id="conductor"), "bad-value", "conductor"),
        (changed(LOCAL, id="conductor-local"), "bad-value", "conductor"),
        (changed(LOCAL, id="../a"), "bad-value", "lower case"),
        (changed(LOCAL, id="A"), "bad-value", "lower case"),
        (changed(LOCAL, id="a" * 65), "bad-value", "at most 64"),
        (changed(EMBEDDED, id="a/b"), "bad-value", "'/'"),
        (changed(LOCAL, destination="bok"), "unknown-destination", "did you mean 'box'"),
        (changed(LOCAL, destination=None), "missing-key", "destination"),
        (changed(LOCAL, tcp=None), "exactly-one", "embedded, unix, tcp, remote"),
        (changed(LOCAL, unix="/x"), "exactly-one", "embedded, unix, tcp, remote"),
        (changed(LOCAL, destination="frontier"), "wrong-destination", "is remote"),
        (changed(EMBEDDED, destination="frontier"), "wrong-destination", "is remote"),
        (changed(REMOTE, destination="box"), "wrong-destination", "is local"),
        (changed(LOCAL, model=None), "missing-key", "model"),
        (changed(LOCAL, threads=0), "unknown-key", "known"),
        (changed(EMBEDDED, base_path="/v1"), "unknown-key", "known"),
        (changed(LOCAL, base_path="v1"), "bad-value", "/v1"),
        (changed(LOCAL, card=None), "missing-key", "card"),
        (changed(LOCAL, card={"skill": {"general": 1.5}}), "bad-value", "from 0.0 to 1.0"),
        (changed(LOCAL, card={"skill": {"General": 0.5}}), "bad-name", "lower case"),
        (changed(LOCAL, card={"source": "guessed"}), "bad-value", "known: declared, measured"),
        (changed(LOCAL, card={"output_tokens_per_s": 0}), "bad-value", "from 0.001"),
        (changed(LOCAL, card={"verbosity": 0}), "bad-value", "from 0.01 to 100"),
        (changed(LOCAL, card={"verbosity": 101}), "bad-value", "from 0.01 to 100"),
        (changed(LOCAL, card={"verbosity": ".nan"}), "wrong-kind", "a number"),
        (changed(LOCAL, limits={"max_in_flight": 0}), "bad-value", "from 1"),
        (changed(LOCAL, limits={"idle": 1}), "unknown-key", "did you mean 'idle_s'"),
        (changed(REMOTE, price=None), "missing-key", "price"),
        (changed(REMOTE, price={"output_usd_per_mtok": None}), "missing-key", "output_usd"),
        (changed(REMOTE, remote={"key": None}), "missing-key", "key"),
        (changed(REMOTE, remote={"key": "sk-live-1"}), "bad-secret", "never the secret itself"),
        (changed(REMOTE, remote={"provider": "Open AI"}), "bad-value", "provider"),
        (changed(REMOTE, remote={"headers": {}}), "unknown-key", "known"),
    ],
)
def test_one_mistake_in_a_worker_is_one_fault_that_says_what_to_do(
    tmp_path: Path, worker: Tree, code: str, words: str
) -> None:
    found = faults_of(tmp_path, worker)
    assert [fault[0] for fault in found] == [code]
    assert words in found[0][1]
    assert "sk-live" not in str(found)


def test_a_skill_needs_a_domain(tmp_path: Path) -> None:
    worker = {**LOCAL, "card": {**LOCAL["card"], "skill": {}}}
    assert [code for code, _ in faults_of(tmp_path, worker)] == ["bad-value"]


def test_two_workers_of_one_name_and_no_worker_at_all_are_refused(tmp_path: Path) -> None:
    assert [code for code, _ in faults_of(tmp_path, LOCAL, LOCAL)] == ["duplicate-id"]
    assert [code for code, _ in faults_of(tmp_path)] == ["bad-value"]


def test_local_only_loads_no_remote_worker_and_says_what_to_do(tmp_path: Path) -> None:
    ((code, message),) = faults_of(
        tmp_path, LOCAL, REMOTE | {"id": "b"}, appliance={"mode": "local-only"}
    )
    assert code == "local-only"
    assert "remove this worker" in message
