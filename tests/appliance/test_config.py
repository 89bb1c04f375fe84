"""A whole site: three files read together, faults together, defaults that are safe."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from conductor.config import load
from conductor.core import SecretRef
from conductor.errors import ConfigError
from conductor.labels import Label
from conductor.secretrefs import resolve
from conductor.settings import (
    Api,
    EgressConfig,
    Key,
    LogConfig,
    PlannerConfig,
    RequestLimits,
    ScanConfig,
)
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import read
from support.appliance import short_directory
from support.configs import KEY, local_worker, remote_worker, small_site, write_site

CONFIGS = Path(__file__).parents[2] / "configs"
SITES = sorted({path.parent for path in CONFIGS.rglob("appliance.yaml")})
SHA256 = hashlib.sha256(b"a key").hexdigest()
Tree = dict[str, Any]


def faults_of(directory: Path, appliance: Tree) -> list[tuple[str, str]]:
    try:
        small_site(directory, appliance=appliance)
    except ConfigError as error:
        assert all(fault.file == f"{directory}/appliance.yaml" for fault in error.faults)
        return [(fault.code, fault.message) for fault in error.faults]
    return []


# -- what is shipped --------------------------------------------------------------------------


@pytest.mark.parametrize("directory", SITES, ids=lambda path: str(path.relative_to(CONFIGS.parent)))
def test_every_shipped_site_loads(directory: Path) -> None:
    site = load(directory)
    assert site.workers
    assert set(site.sha256) == {"appliance.yaml", "policy.yaml", "workers.yaml"}


def test_no_shipped_site_file_stands_outside_a_site_that_is_loaded() -> None:
    names = ("appliance.yaml", "policy.yaml", "workers.yaml")
    files = {path for name in names for path in CONFIGS.rglob(name)}
    assert {CONFIGS, CONFIGS / "demo"} <= set(SITES)
    assert files == {site / name for site in SITES for name in names}


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_file_is_strict_yaml(path: Path) -> None:
    faults = Faults()
    assert not read(path, faults).root.empty
    faults.raise_any()


def test_the_shipped_default_keeps_everything_on_the_machine() -> None:
    site = load(CONFIGS)
    assert site.appliance.mode == "local-only"
    assert [worker.remote for worker in site.workers] == [False] * len(site.workers)
    assert [worker.id for worker in site.workers] == ["smollm2-135m", "qwen2.5-coder-0.5b"]


def test_the_shipped_default_writes_out_the_defaults_of_the_code(tmp_path: Path) -> None:
    shipped = load(CONFIGS).appliance
    assert shipped.api == Api()
    assert (shipped.limits, shipped.scan) == (RequestLimits(), ScanConfig())
    assert (shipped.planner, shipped.egress) == (PlannerConfig(engine="pocket"), EgressConfig())
    assert shipped.log == LogConfig()


# -- loading ----------------------------------------------------------------------------------


def test_a_small_site_loads_with_the_hashes_of_its_files(tmp_path: Path) -> None:
    site = small_site(tmp_path, workers=[local_worker("a", port=1), remote_worker("b")])
    assert [worker.id for worker in site.workers] == ["a", "b"]
    for name, digest in site.sha256.items():
        assert digest == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert site.policy.sha256 == site.sha256["policy.yaml"]


def test_faults_of_all_three_files_come_at_once(tmp_path: Path) -> None:
    write_site(
        tmp_path,
        appliance={"mode": "conected", "keys": []},
        policy={"default_label": "publik"},
        workers=[local_worker("a", port=1, destination="bx")],
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    found = [(Path(fault.file).name, fault.code) for fault in caught.value.faults]
    assert found == [
        ("appliance.yaml", "bad-value"),
        ("appliance.yaml", "bad-value"),
        ("policy.yaml", "unknown-label"),
        ("workers.yaml", "unknown-destination"),
    ]


@pytest.mark.parametrize("name", ["appliance.yaml", "policy.yaml", "workers.yaml"])
@pytest.mark.parametrize("damage", ["absent", "not yaml", "directory"])
def test_an_unusable_file_is_one_fault_and_blames_no_other(
    tmp_path: Path, name: str, damage: str
) -> None:
    site = write_site(tmp_path, workers=[local_worker("a", port=1), remote_worker("b")])
    (site / name).unlink()
    if damage == "not yaml":
        (site / name).write_text("a: [")
    if damage == "directory":
        (site / name).mkdir()
    with pytest.raises(ConfigError) as caught:
        load(site)
    assert [fault.file for fault in caught.value.faults] == [str(site / name)]


def test_a_directory_that_is_not_there_names_all_three_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "nowhere")
    assert len(caught.value.faults) == 3


# -- appliance.yaml ---------------------------------------------------------------------------


def test_left_out_parts_have_safe_defaults(tmp_path: Path) -> None:
    site = small_site(tmp_path, appliance={"mode": None, "paths": {"state": None}, "api": None})
    assert site.appliance.mode == "local-only"
    assert site.appliance.api == Api()
    assert site.appliance.paths.state == tmp_path / "var/state"
    (app, trusted) = site.appliance.keys
    assert (app.declare_labels, app.models, app.default_label) == (False, None, None)
    assert trusted.declare_labels


def test_relative_paths_start_at_the_root_and_the_root_where_one_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with short_directory() as here:
        monkeypatch.chdir(here)
        site = small_site(here, appliance={"paths": {"root": None, "audit": "/var/log/c"}})
        monkeypatch.undo()
    assert site.appliance.paths.run == here / "r"
    assert site.appliance.paths.audit == Path("/var/log/c")
    assert site.appliance.keys[0].secret == SecretRef("file", str(here / "app.key"))


def test_in_a_deep_directory_sockets_are_named_from_where_the_appliance_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("a" * 90)
    deep.mkdir()
    monkeypatch.chdir(deep)
    site = load(write_site(deep, appliance={"paths": {"root": "."}}))
    assert site.appliance.paths.run == Path("r")
    assert site.appliance.paths.state == deep / "s"


def test_a_key_of_the_small_site_can_be_fetched_and_stands_in_no_record(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    reference = site.appliance.keys[0].secret
    assert reference is not None
    assert resolve(reference).reveal() == KEY
    assert KEY not in repr(site)


def test_a_key_may_be_restricted_labelled_and_limited(tmp_path: Path) -> None:
    key = {
        "id": "k",
        "sha256": SHA256,
        "models": ["conductor-local", "local-a"],
        "default_label": "confidential+pii",
        "budget_usd_per_day": 2.5,
        "max_in_flight": 3,
    }
    (loaded,) = small_site(tmp_path, appliance={"keys": [key]}).appliance.keys
    assert loaded == Key(
        id="k",
        secret=None,
        sha256=SHA256,
        models=("conductor-local", "local-a"),
        default_label=Label(2, frozenset({"pii"})),
        budget_usd_per_day=2.5,
        max_in_flight=3,
    )


def keys(*changes: Tree) -> Tree:
    base = {"id": "k", "secret": "env:A_KEY"}
    merged = [{**base, **change} for change in changes]
    return {"keys": [{k: v for k, v in key.items() if v is not None} for key in merged]}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"mode": "offline"}, "bad-value", "known: connected, local-only"),
        ({"modes": "connected"}, "unknown-key", "did you mean 'mode'"),
        ({"api": {"host": "example.com"}}, "bad-value", "IP address"),
        ({"api": {"host": "::1%lo"}}, "bad-value", "IP address"),
        ({"api": {"port": 70000}}, "bad-value", "from 0 to 65535"),
        ({"api": {"admin_host": "0.0.0.0"}}, "not-loopback", "stays on this machine"),
        ({"api": {"admin_host": "10.0.0.1"}}, "not-loopback", "stays on this machine"),
        ({"api": {"port": 8080, "admin_port": 8080}}, "bad-value", "different ports"),
        ({"api": {"unix_socket": "/" + "x" * 107}}, "bad-value", "107 bytes"),
        ({"api": {"max_body_bytes": 0}}, "bad-value", "from 1024"),
        ({"api": {"max_in_flight_body_bytes": 4096}}, "bad-value", "max_body_bytes"),
        ({"api": {"max_body_bytes": 2**29}}, "bad-value", "max_body_bytes"),
        ({"limits": {"total_s": 0}}, "bad-value", "from 0.001"),
        ({"limits": {"max_steps": 6}}, "bad-value", "from 1 to 5"),
        ({"limits": {"max_rounds": 0}}, "bad-value", "from 1 to 5"),
        ({"limits": {"max_rounds": 6}}, "bad-value", "from 1 to 5"),
        ({"limits": {"max_cost": 1}}, "unknown-key", "did you mean 'max_cost_usd'"),
        ({"planner": {"engine": "Default"}}, "bad-value", "a name"),
        ({"planner": {"bundle": "b"}}, "untrusted", "needs trusted_keys"),
        ({"planner": {"trusted_keys": ["k.pub"]}}, "bad-value", "for a bundle at a path"),
        ({"planner": {"bundle": "b", "trusted_keys": "k.pub"}}, "wrong-kind", "a list"),
        ({"planner": {"cost_weight": 0.1}}, "wrong-kind", "mapping"),
        ({"planner": {"cost_weight": {"thrify": 1}}}, "unknown-key", "did you mean 'thrifty'"),
        ({"planner": {"cost_weight": {"thrifty": -1}}}, "wrong-kind", "a number"),
        ({"planner": {"cost_weight": {"quality": 1001}}}, "bad-value", "to 1000"),
        ({"egress": {"permit_ttl_s": 3600}}, "bad-value", "to 300.0"),
        ({"scan": {"processes": 0}}, "bad-value", "from 1"),
        ({"audit": {"max_batch": 0}}, "bad-value", "from 1"),
        ({"audit": {"max_batch": 257}}, "bad-value", "to 256"),
        ({"log": {"level": "verbose"}}, "bad-value", "known: debug"),
        ({"log": {"format": "jsn"}}, "bad-value", "did you mean 'json'"),
        ({"keys": None}, "missing-key", "'keys'"),
        ({"keys": []}, "bad-value", "must not be empty"),
        (keys({"id": "K!"}), "bad-value", "lower case"),
        (keys({"secret": None}), "exactly-one", "secret, sha256"),
        (keys({"sha256": SHA256}), "exactly-one", "secret, sha256"),
        (keys({"secret": None, "sha256": SHA256.upper()}), "bad-value", "lower case hex"),
        (keys({"secret": "sk-live-1"}), "bad-secret", "never the secret itself"),
        (keys({"secret": None, "sha256": "sk-live-1"}), "bad-value", "64 digits"),
        (keys({}, {"secret": "env:B"}), "duplicate-id", "id stands already"),
        (keys({}, {"id": "l"}), "duplicate-id", "secret stands already"),
        (keys({"models": ["local-b"]}), "unknown-model", "did you mean 'local-a'"),
        (keys({"default_label": "internl"}), "unknown-label", "did you mean 'internal'"),
        (keys({"declare_labels": "true"}), "wrong-kind", "true or false"),
        (keys({"max_in_flight": 0}), "bad-value", "from 1"),
        (keys({"set_cost_weight": 1}), "wrong-kind", "true or false"),
    ],
)
def test_one_mistake_in_the_appliance_is_one_fault_that_says_what_to_do(
    tmp_path: Path, changes: Tree, code: str, words: str
) -> None:
    found = faults_of(tmp_path, changes)
    assert [fault[0] for fault in found] == [code]
    assert words in found[0][1]
    assert "sk-live" not in str(found)


def test_rounds_and_cost_weights_are_the_operators(tmp_path: Path) -> None:
    changes: Tree = {
        "limits": {"max_rounds": 5},
        "planner": {"cost_weight": {"balanced": 0}},
        **keys({"set_cost_weight": True}),
    }
    loaded = small_site(tmp_path, appliance=changes).appliance
    assert loaded.limits.max_rounds == 5 and loaded.keys[0].set_cost_weight
    weights = loaded.planner.cost_weight
    assert (weights.thrifty, weights.balanced, weights.quality) == (0.3, 0, 0.01)
    assert weights.of("balanced") == 0 and weights.of("thrifty") == 0.3


def test_hosts_are_literal_addresses(tmp_path: Path) -> None:
    api = {"host": "localhost", "admin_host": "::1"}
    loaded = small_site(tmp_path, appliance={"api": api}).appliance.api
    assert (loaded.host, loaded.admin_host) == ("127.0.0.1", "::1")
