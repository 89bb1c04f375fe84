"""Air-gapped: the whole suite of requests, with a sniffer on the only way out."""

from __future__ import annotations

import json
import pwd
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import HERE, STATE, VENDOR_LOG, active, ask, content, ready, run, show, status, until

OUTSIDE = "198.51.100.2"
SNIFFED = Path("/results/sniffed")
IBAN = "IT60 X054 2811 1010 0000 0123 456"


@pytest.fixture(scope="module", autouse=True)
def gap() -> Iterator[None]:
    """One cable to the outside, a sniffer at its other end, and the switch."""
    run("ip", "netns", "add", "outside")
    run("ip", "link", "add", "cable", "type", "veth", "peer", "name", "far", "netns", "outside")
    for words in (
        "link set cable addrgenmode none",
        "address add 198.51.100.1/24 dev cable",
        "link set cable up",
        f"route add default via {OUTSIDE}",
        "-n outside link set far addrgenmode none",
        f"-n outside address add {OUTSIDE}/24 dev far",
        "-n outside link set far up",
    ):
        run("ip", *words.split())
    Path("/etc/resolv.conf").write_text(f"nameserver {OUTSIDE}\n")
    run(
        *("systemd-run", "--unit=sniffer", "ip", "netns", "exec", "outside"),
        *("python3", HERE / "sniffer.py", "far", SNIFFED),
    )
    until(lambda: SNIFFED.exists() and "listening" in SNIFFED.read_text(), 10)
    run("conductor", "mode", "air-gapped")
    until(ready, 30)
    yield
    run("conductor", "mode", "connected")
    assert active("conductor.service")  # the rules it required went without taking it along
    until(ready, 30)
    run("ip", "netns", "del", "outside")


def frames() -> list[str]:
    return SNIFFED.read_text().splitlines()[1:]


def test_what_is_local_is_answered() -> None:
    assert content(ask("Name one planet that has rings."))
    assert content(ask(f"Write one sentence asking to pay to {IBAN}.", "conductor-quality"))
    assert ask("Count to three.", "own", stream=True).text.rstrip().endswith("data: [DONE]")


def test_no_vendor_is_reached_and_egress_cannot_even_be_started() -> None:
    before = VENDOR_LOG.read_bytes()
    assert ask("How high is the tower of Pisa?", "vendor").status >= 400
    assert show("conductor-egress.service", "LoadState") == "masked"
    assert status("systemctl", "start", "conductor-egress.service") != 0
    assert not active("conductor-egress.service")
    assert VENDOR_LOG.read_bytes() == before


def test_air_gapped_the_api_is_all_but_closed() -> None:
    run("systemd-analyze", "security", "--no-pager", "--threshold=6", "conductor.service")


def test_the_gap_is_attested_in_the_sealed_record() -> None:
    log = b"".join(path.read_bytes() for path in (STATE / "audit").rglob("*") if path.is_file())
    assert b"attestation" in log
    run("conductor", "audit", "verify", STATE / "audit")


def test_nothing_came_out_not_even_a_question_for_a_name() -> None:
    assert frames() == []


def test_a_canary_of_the_service_s_user_is_blocked_and_counted() -> None:
    account = pwd.getpwnam("conductor")
    dial = f"import socket; socket.create_connection(('{OUTSIDE}', 9), 2)"
    words = ("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")
    assert status(*words, "python3", "-c", dial) != 0
    assert frames() == []
    counted = run("nft", "list", "counter", "inet", "conductor_airgap", "blocked")
    assert "packets 0 " not in counted, counted


def test_the_rules_that_the_kernel_has_are_those_that_were_attested_to() -> None:
    proof = json.loads(run("conductor", "attest", "--json"))
    assert proof["objections"] == []
    assert proof["inside"]["firewall_sha256"] == proof["outside"]["firewall_sha256"]
    assert proof["outside"]["blocked"] >= 1


def test_the_sniffer_would_have_heard_it() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"of root", (OUTSIDE, 9))
    time.sleep(0.5)
    assert frames()
