"""Attestation: what counts as an open gap, what is recorded, that an open one closes the door."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from conductor.api.server import serving
from conductor.audit.segments import read_since
from conductor.box import canaries, firewall
from conductor.box.airgap import Declared, Marker
from conductor.box.attestation import Evidence
from conductor.box.command import Ran
from conductor.box.network import Network, network
from conductor.box.outside import open_ways, seen
from conductor.cli.attest import Proof, proof_of
from conductor.cli.firststart import prepare
from conductor.cli.installed import Installed, latest
from conductor.config import Site, load
from conductor.run import attesting
from support.appliance import short_directory
from support.clients import http_client
from support.configs import KEY, local_worker, remote_worker, write_site
from support.installed import install

GAP = Declared(Marker("air-gapped", 1, "2026-08-01T12:00:00Z", 0), by_unit=True)
NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
ALONE = Network(namespace=7, interfaces=("lo",), routes=0, abstract_sockets=0)
SHUT = {"tcp": "blocked:ENETUNREACH", "dbus": "blocked:EACCES"}
SECURE = Evidence(GAP, ALONE, SHUT, "ab" * 32, (), 3, ("names-not-sought",))


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, ()),
        ({"declared": Declared(GAP.marker)}, ("unit-not-closed",)),
        ({"declared": replace(GAP, marker=replace(GAP.marker, damaged=True))}, ("marker-damaged",)),
        ({"network": replace(ALONE, interfaces=("eth0", "lo"))}, ("interfaces",)),
        ({"network": replace(ALONE, interfaces=("lo", "sit0"))}, ()),
        ({"network": replace(ALONE, interfaces=None)}, ("interfaces",)),
        ({"network": replace(ALONE, routes=1)}, ("routes",)),
        ({"network": replace(ALONE, routes=None)}, ("routes",)),
        ({"network": replace(ALONE, abstract_sockets=2)}, ("abstract-sockets",)),
        ({"network": replace(ALONE, namespace=None)}, ("namespace-unknown",)),
        ({"canaries": {}}, ("no-canaries",)),
        ({"canaries": {**SHUT, "dns": "open"}}, ("canary:dns",)),
        ({"canaries": {**SHUT, "udp": "unanswered"}}, ("canary:udp",)),
        ({"destinations": ("vendor",)}, ("destinations",)),
        ({"firewall_expected": True}, ()),
        ({"firewall_expected": True, "firewall_sha256": None}, ("firewall-rules",)),
        ({"firewall_sha256": None}, ()),
    ],
)
def test_what_an_air_gap_lacks_is_named(changes: dict[str, Any], reasons: tuple[str, ...]) -> None:
    evidence = replace(SECURE, **changes)
    assert evidence.reasons == reasons
    assert evidence.verdict == ("degraded" if reasons else "secure")


def test_without_a_declared_gap_none_is_claimed() -> None:
    assert replace(SECURE, declared=Declared()).verdict == "connected"


def test_the_network_is_read_as_the_kernel_writes_it(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text("Inter-|\n face |bytes\n    lo: 0 0\n  eth0: 1 2\n")
    (tmp_path / "net" / "route").write_text("Iface\tDest\neth0\t00000000\t0102\n")
    (tmp_path / "net" / "ipv6_route").write_text("fe80 40 0 0 0 1 0 0 1     eth0\n00 80 0 0 lo\n")
    (tmp_path / "net" / "unix").write_text(
        "Num RefCount Protocol Flags Type St Inode Path\n"
        "0: 2 0 10000 0001 01 11 @/tmp/dbus-x\n0: 2 0 0 1 03 12\n0: 2 0 10000 1 01 13 /run/a b\n"
    )
    assert network(tmp_path) == Network(None, ("eth0", "lo"), 2, 1)


def test_what_cannot_be_read_is_not_taken_for_good(tmp_path: Path) -> None:
    assert network(tmp_path) == Network(None, None, None, None)


WAY_OUT = (
    "ip link set lo up",
    "ip link add d0 type veth peer name d1",
    "ip link set d0 up",
    "ip link set d1 up",
    "ip addr add 10.9.9.9/24 dev d0",
    "ip route add default via 10.9.9.1",
)
"""To an interface behind which nobody is."""
RELEASE = "import json; from conductor.box.canaries import released; print(json.dumps(released()))"


def in_new_network(*, closed: bool) -> dict[str, str]:
    """The canaries' ends in a network namespace of its own, without or with a way to somewhere."""
    way = "" if closed else " && ".join(WAY_OUT) + "; "
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", f'{way}exec "$0" -c "$1"', sys.executable, RELEASE],
        capture_output=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace takes root")


@needs_root
def test_canaries_stay_inside_a_namespace_without_a_way_out() -> None:
    ended = in_new_network(closed=True)
    assert {ended[name] for name in ("tcp", "udp", "dns")} == {"blocked:ENETUNREACH"}
    assert set(canaries.escaped(ended)) <= {"raw", "dbus", "systemd", "resolver", "docker"}


@needs_root
def test_a_canary_that_has_a_way_out_says_so() -> None:
    """That the test above can fail: the way leads to an interface behind which nobody is."""
    ended = in_new_network(closed=False)
    assert {"tcp", "udp"} <= set(canaries.escaped(ended))


def test_somebody_at_an_abstract_name_is_a_way_out() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0{canaries.CANARY_NAME}")
        listener.listen()
        assert canaries._unix(f"\0{canaries.CANARY_NAME}") == "open"
    assert canaries._unix(f"\0{canaries.CANARY_NAME}") == "blocked:ECONNREFUSED"


@dataclass
class Daemon:
    site: Site
    http: httpx.AsyncClient

    def records(self) -> list[dict[str, Any]]:
        return list(read_since(self.site.appliance.paths.audit, ""))


async def opened(box: Daemon) -> httpx.Response:
    """The first answer after the refusals."""
    for _ in range(500):
        if (answer := await box.http.get("/v1/models")).status_code == 200:
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError("the door stayed shut")


@asynccontextmanager
async def daemon(*, gap: bool) -> AsyncIterator[Daemon]:
    """`serve` with a worker here and one abroad, on a machine with or without a declared gap."""
    with short_directory() as directory:
        write_site(directory, workers=[local_worker("local-a", port=9), remote_worker("remote-a")])
        if gap:
            (directory / "mode.json").write_bytes(GAP.marker.as_json())
        site = load(directory)
        prepare(site)
        async with serving(site) as server:
            url, headers = f"http://127.0.0.1:{server.port}", {"Authorization": f"Bearer {KEY}"}
            async with http_client(url, headers=headers) as http:
                yield Daemon(site, http)


async def test_an_open_gap_closes_the_door_until_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [replace(SECURE, canaries={**SHUT, "dns": "open"})]
    monkeypatch.setattr(attesting, "look_around", lambda site: found[-1])
    monkeypatch.setattr(attesting, "AGAIN_S", 0.05)
    async with daemon(gap=True) as box:
        answer = await box.http.get("/v1/models")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "air_gap_open")
        ready = (await box.http.get("/readyz")).json()
        assert "air gap: canary:dns" in ready["reasons"]
        assert (await box.http.get("/healthz")).status_code == 200
        found.append(SECURE)
        answer = await opened(box)
        assert [model["id"] for model in answer.json()["data"]][-1] == "local-a"
        records = box.records()
    events = [one for one in records if one["event"] in ("mode", "attestation")]
    assert (events[0]["event"], events[0]["switch"]) == ("mode", "air-gapped")
    assert (events[0]["number"], events[0]["uid"], events[0]["set_aside"]) == (1, 0, ["remote-a"])
    assert (events[1]["verdict"], events[1]["reasons"]) == ("degraded", ["canary:dns"])
    assert events[-1]["verdict"] == "secure" and events[-1]["destinations"] == []


async def test_where_no_gap_is_declared_no_canary_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def released() -> dict[str, str]:
        raise AssertionError("it would connect to elsewhere")

    monkeypatch.setattr("conductor.box.attestation.released", released)
    async with daemon(gap=False) as box:
        assert (await box.http.get("/v1/models")).status_code == 200
        records = box.records()
    [one] = [record for record in records if record["event"] == "attestation"]
    assert (one["verdict"], one["canaries"], one["destinations"]) == ("connected", {}, ["frontier"])


def test_an_attestation_that_is_too_old_closes_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    class Site:
        declared = GAP

    class Holder:
        site = Site()

    attester = attesting.Attester(Holder(), None)  # type: ignore[arg-type]
    assert attester.open_gap == ("not-attested",)
    attester.latest, attester._at_s = SECURE, 1000.0
    monkeypatch.setattr(attesting.time, "monotonic", lambda: 1001.0)
    assert attester.open_gap == ()
    monkeypatch.setattr(attesting.time, "monotonic", lambda: 1001.0 + attesting.STALE_S)
    assert attester.open_gap == ("not-attested",)


RULES: list[dict[str, Any]] = [
    {"metainfo": {"version": "1.0.6"}},
    {"table": {"family": "inet", "name": "conductor_airgap", "handle": 4}},
    {"counter": {"name": "blocked", "handle": 2, "packets": 3, "bytes": 180}},
    {"chain": {"name": "output", "handle": 1, "policy": "accept"}},
    {"rule": {"chain": "output", "handle": 5, "expr": [{"counter": "blocked"}, {"reject": {}}]}},
]


def machine(proc: Path, **namespaces: int) -> None:
    """A `/proc` whose processes 1, 11 and 12 are in these namespaces (files stand for them)."""
    for name, number in namespaces.items():
        folder = proc / name.removeprefix("p") / "ns"
        folder.mkdir(parents=True)
        shared = proc / f"namespace-{number}"
        shared.touch()
        os.link(shared, folder / "net")


def answering(arguments: list[str]) -> Ran:
    text = " ".join(arguments)
    if "MainPID" in text:
        process = {"conductor.service": "11", "conductor-planner.service": "12"}
        return Ran(0, process.get(arguments[-1], "0") + "\n")
    if text.startswith("nft"):
        return Ran(0, json.dumps({"nftables": RULES}))
    return Ran(0)


def test_from_outside_a_service_in_the_machines_own_network_is_seen(tmp_path: Path) -> None:
    machine(tmp_path, p1=1, p11=2, p12=1)
    outside = seen(answering, tmp_path)
    assert outside.blocked == 3 and outside.firewall_sha256
    assert open_ways(outside) == ["conductor-planner.service: the machine's own network"]


def test_the_counters_are_no_part_of_the_firewalls_hash(tmp_path: Path) -> None:
    machine(tmp_path, p1=1)

    def later(arguments: list[str]) -> Ran:
        return Ran(0, answering(arguments).output.replace('"packets": 3', '"packets": 4'))

    assert seen(later, tmp_path).blocked == 4
    assert seen(later, tmp_path).firewall_sha256 == seen(answering, tmp_path).firewall_sha256


def test_rules_loaded_anew_have_the_hash_that_they_had_and_others_another() -> None:
    anew = json.loads(json.dumps(RULES).replace('"handle": 5', '"handle": 9'))
    looser = [one for one in RULES if "rule" not in one]
    hashes = [firewall.sha256(json.dumps({"nftables": one})) for one in (RULES, anew, looser)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert [firewall.sha256(text) for text in ("", "{}", '{"nftables": []}')] == [None] * 3


def test_rules_that_were_seen_too_long_ago_are_not_taken_for_the_present_ones(
    tmp_path: Path,
) -> None:
    file = tmp_path / "firewall.json"
    listing = json.dumps({"nftables": RULES})
    file.write_text(f"100.00 190.00\n{listing}\n")
    assert firewall.seen_sha256(file, 110.0) == firewall.sha256(listing)
    assert firewall.seen_sha256(file, 100.0 + firewall.STALE_S) is None
    assert firewall.seen_sha256(tmp_path / "none", 110.0) is None


def test_a_machine_without_a_record_proves_nothing(tmp_path: Path) -> None:
    place = install(tmp_path)
    (place.config / "mode.json").write_bytes(GAP.marker.as_json())
    proof = proof_of(Installed(place, place.config, None), answering)
    assert any("has not attested" in one for one in proof.objections)
    assert any("conductor.service.d" in one for one in proof.objections)


def test_a_secure_record_and_an_apart_service_leave_nothing_to_object(tmp_path: Path) -> None:
    machine(tmp_path, p1=1, p11=2, p12=3)
    inside = {
        "verdict": "secure",
        "reasons": [],
        "mode_number": 1,
        "ts": "2026-08-01T12:00:00.000Z",
    }
    proof = Proof(GAP.marker, inside, seen(answering, tmp_path), (), NOON)
    assert proof.objections == ()
    later = replace(proof, now=NOON + timedelta(hours=1))
    assert ["too old" in one for one in later.objections] == [True]
    earlier = replace(proof, now=NOON - timedelta(hours=1))
    assert ["to come" in one for one in earlier.objections] == [True]
    switched = replace(proof, marker=replace(GAP.marker, number=3))
    assert ["since the mode was switched" in one for one in switched.objections] == [True]
    loosened = replace(proof, inside={**inside, "firewall_sha256": "ab" * 32})
    assert ["not those that were attested" in one for one in loosened.objections] == [True]
    bare = replace(proof, inside={**inside, "ts": "yesterday"})
    assert len(bare.objections) == 1


def test_rules_that_are_gone_are_objected_to_where_there_could_be_some(tmp_path: Path) -> None:
    machine(tmp_path, p1=1)

    def flushed(code: int) -> Any:
        return lambda arguments: Ran(code) if arguments[0] == "nft" else answering(arguments)

    proof = Proof(GAP.marker, None, seen(flushed(1), tmp_path), (), NOON)
    assert "the firewall rules are not loaded" in proof.objections
    assert not seen(flushed(127), tmp_path).unruled


def test_an_attestation_is_found_by_its_event_and_by_nothing_that_looks_like_it(
    tmp_path: Path,
) -> None:
    log = tmp_path / "audit-00000001.jsonl"
    true, lure = {"event": "attestation", "verdict": "degraded"}, {"event": "attestation"}
    log.write_text(f"{_line(true)}{_line({'event': 'stop', 'said': lure, 'verdict': 'secure'})}")
    assert latest(tmp_path, "attestation") == true


def test_what_a_service_leaves_in_the_place_of_its_log_does_not_hold_root_up(
    tmp_path: Path,
) -> None:
    (tmp_path / "audit-00000001.jsonl").write_text(_line({"event": "start"}))
    os.mkfifo(tmp_path / "audit-00000002.jsonl")
    assert latest(tmp_path, "start") == {"event": "start"}
    (tmp_path / "audit-00000003.jsonl").symlink_to("/dev/zero")
    assert latest(tmp_path, "start") is None


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


async def test_a_look_that_breaks_off_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(site: Site) -> Evidence:
        looks.append(1)
        if len(looks) == 2:
            raise RuntimeError("can't start new thread")
        return SECURE

    monkeypatch.setattr(attesting, "look_around", look)
    monkeypatch.setattr(attesting, "PERIOD_S", 0.02)
    async with daemon(gap=True) as box:
        for _ in range(500):
            if len(looks) > 3:
                break
            await asyncio.sleep(0.02)
        assert len(looks) > 3
        assert (await box.http.get("/v1/models")).status_code == 200
