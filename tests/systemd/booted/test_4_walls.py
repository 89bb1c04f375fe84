"""What each process cannot reach, tried from inside its unit with something at every address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from box import call, ready, run, stop, until
from walls import OUTSIDE, probed, temptations

pytestmark = pytest.mark.full

Found = dict[str, dict[str, Any]]

WITHOUT_A_NETWORK = ("conductor", "conductor-planner", "conductor-worker@one")
UNITS = (*WITHOUT_A_NETWORK, "conductor-egress")
CLIENTS = "203.0.113.16/28"
OTHER = Path("/run/conductor/embedded/other")
TCP_FRONT = f"""[Socket]
ListenStream=0.0.0.0:8443
IPAddressAllow={CLIENTS}
"""


def unfiltered(drop_in: Path) -> dict[str, Any]:
    """What a listener of the API could be turned to, were it not for `IPAddressDeny=`."""
    stop()
    drop_in.write_text("[Socket]\nIPAddressDeny=\n")
    try:
        return {"turned": probed(["conductor"])["conductor"]["turned"]}
    finally:
        drop_in.unlink()


@pytest.fixture(scope="module")
def found() -> Iterator[Found]:
    stop()
    # Another instance's folder, so that one can try it.
    run(*["install", "-d", "-m", "2750", "-o", "conductor-worker", "-g", "conductor"], OTHER)
    front = Path("/run/systemd/system/conductor.socket.d/tcp.conf")
    front.parent.mkdir(parents=True, exist_ok=True)
    front.write_text(TCP_FRONT)
    try:
        with temptations() as came:
            results: Found = probed(UNITS)
            results["came"] = {"by udp": list(came)}
            results["unfiltered"] = unfiltered(front.with_name("zz-open.conf"))
            yield results
    finally:
        front.unlink()
        run("systemctl", "daemon-reload")
        stop()
        run("systemctl", "start", "conductor.target")
        until(ready, 30)


@pytest.mark.parametrize("unit", WITHOUT_A_NETWORK)
def test_nothing_outside_can_be_dialled_from(unit: str, found: Found) -> None:
    dialled = found[unit]["dial"]
    assert "open" not in dialled.values(), dialled


def test_no_packet_of_theirs_came_out(found: Found) -> None:
    # Egress alone may: its canaries are the ones that prove that the sink hears.
    own = f"canary of {found['conductor-egress']['uid']}".encode()
    assert set(found["came"]["by udp"]) == {own}


@pytest.mark.parametrize("unit", WITHOUT_A_NETWORK)
def test_there_is_no_interface_but_lo_in(unit: str, found: Found) -> None:
    assert found[unit]["interfaces"] == ["lo"]


@pytest.mark.parametrize("unit", UNITS)
def test_a_listener_cannot_be_turned_round_in(unit: str, found: Found) -> None:
    attempts = found[unit]["turned"]
    assert unit.startswith("conductor-worker") or attempts, "no listener was handed over"
    assert all("open" not in both for both in attempts.values()), attempts


def test_a_tcp_listener_is_held_by_the_filter_of_its_socket_unit(found: Found) -> None:
    outcomes = [how for both in found["conductor"]["turned"].values() for how in both]
    assert outcomes.count("timeout") == 1, outcomes


def test_without_that_filter_it_would_have_been_a_way_out(found: Found) -> None:
    assert "open" in [how for both in found["unfiltered"]["turned"].values() for how in both]


@pytest.mark.parametrize("unit", UNITS)
def test_other_processes_are_out_of_sight_of(unit: str, found: Found) -> None:
    assert found[unit]["processes"] == 1


@pytest.mark.parametrize("unit", UNITS)
def test_the_machine_cannot_be_changed_by(unit: str, found: Found) -> None:
    may = {
        "conductor": {"/var/lib/conductor/written", "/var/lib/conductor-published/written"},
        "conductor-worker@one": {"/run/conductor/embedded/one/written"},
    }
    written = {path for path, how in found[unit]["write"].items() if how == "open"}
    assert written == may.get(unit, set())
    assert found[unit]["fork_namespace"] != "open"
    assert found[unit]["dial"]["dbus"] != "open"
    assert found[unit]["dial"]["manager"] != "open"


@pytest.mark.parametrize("unit", UNITS)
def test_credentials_and_state_are_for_their_owner_alone(unit: str, found: Found) -> None:
    shared = {"/etc/conductor/policy.yaml", "/var/lib/conductor-published/policy"}
    own = {
        "conductor": {"/var/lib/conductor", "/var/lib/conductor/audit"},
        "conductor-egress": {
            f"/run/credentials/conductor-egress.service/{name}_played"
            for name in ("sealed", "vendor")
        },
    }
    readable = {path for path, how in found[unit]["read"].items() if how == "open"}
    assert readable == shared | own.get(unit, set())


def test_only_egress_is_given_vendor_keys(found: Found) -> None:
    given = {unit: found[unit]["credentials"] for unit in UNITS}
    assert given == {unit: [] for unit in WITHOUT_A_NETWORK} | {
        "conductor-egress": ["sealed_played", "vendor_played"]
    }


def test_egress_reaches_the_network_which_shows_that_the_probe_works(found: Found) -> None:
    assert found["conductor-egress"]["dial"]["tcp"] == "open"
    assert OUTSIDE


def test_all_is_well_afterwards() -> None:
    until(ready, 30)
    assert call("GET", "/v1/models").status == 200
