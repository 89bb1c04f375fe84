"""`conductor doctor` on an installation below a directory: what it sees of what somebody broke."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from conductor.activation.store import Store
from conductor.audit import keys
from conductor.audit.log import AuditLog
from conductor.box.certificates import expiry
from conductor.box.command import nothing_runs
from conductor.box.place import Place
from conductor.cli.doctor import doctor
from conductor.cli.setupanswers import Answers, LocalModel, Vendor
from conductor.cli.setupwrite import set_up
from support.installed import install

MODEL = LocalModel("big", "/run/vllm/api.sock", "big-32b")
VENDOR = Vendor("frontier", "openai", "gpt-x", base_url="https://llm.example.com/v1")
QUIET = {"not-root", "clock-not-synchronised", "memory-low", "disk-low", "disk-full"}
"""What hangs on the machine that the tests run on."""


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    """An installation with a version, state, a policy in force and a sealed log."""
    place = install(tmp_path)
    version = place.versions / "versions" / "0.1.0"
    version.mkdir(parents=True)
    (version / "program").write_text("x")
    (place.versions / "current").symlink_to("versions/0.1.0")
    set_up(
        place,
        Answers(workers=(MODEL,), embedded=False, away="vendor", vendor=VENDOR),
        nothing_runs,
        force=False,
    )
    key = place.config / "credentials" / "vendor" / "frontier"
    key.parent.mkdir(parents=True, mode=0o700)
    key.parent.parent.chmod(0o700)
    key.write_text("sk-x\n")
    key.chmod(0o600)
    state = place.at("/var/lib/conductor")
    state.mkdir(parents=True, mode=0o700)
    with Store(place.at("/var/lib/conductor-published")).writing() as writer:
        policy = (place.config / "policy.yaml").read_bytes()
        writer.put(policy, 1, "2026-08-01T12:00:00Z", "first")
    keys.ensure(state / "audit-key", state / "audit")
    log = AuditLog.open(state / "audit", key=keys.load(state / "audit-key"), checkpoint_s=1)
    for number in range(5):
        await log.append("stop", number=number)
    await log.close()
    return place


def findings(place: Place, *more: str) -> set[str]:
    result = CliRunner().invoke(doctor, ["--root", str(place.root), "--json", *more])
    body = json.loads(result.output)
    assert result.exit_code == body["exit_code"]
    return {finding["id"] for finding in body["findings"]} - QUIET


def test_a_whole_installation_is_well(place: Place) -> None:
    assert findings(place) == set()


def _cut(place: Place) -> None:
    """Cut the log back to before its last checkpoint, as somebody with root and no key would."""
    [segment] = place.at("/var/lib/conductor/audit").glob("audit-*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:3]))
    (segment.parent / "checkpoint").unlink(missing_ok=True)


def _lose(place: Place) -> None:
    """The whole log, which a service that was broken into can remove: its key's folder knows."""
    shutil.rmtree(place.at("/var/lib/conductor/audit"))


def _flip(place: Place) -> None:
    [segment] = place.at("/var/lib/conductor/audit").glob("audit-*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b'"number":2', b'"number":9'))


def _future(place: Place) -> None:
    [segment] = place.at("/var/lib/conductor/audit").glob("audit-*.jsonl")
    year = str(datetime.now(UTC).year).encode()
    segment.write_bytes(segment.read_bytes().replace(b'"ts":"' + year, b'"ts":"2999'))


def _damage_policy(place: Place) -> None:
    path = Store(place.at("/var/lib/conductor-published")).path(1)
    path.write_bytes(path.read_bytes()[:-100])


def _lose_policy(place: Place) -> None:
    Store(place.at("/var/lib/conductor-published")).path(1).unlink()


def _write(target: str, text: str) -> Callable[[Place], None]:
    def breaks(place: Place) -> None:
        path = place.at(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return breaks


def _chmod(target: str, mode: int) -> Callable[[Place], None]:
    return lambda place: place.at(target).chmod(mode)


SYSTEM, SHIPPED = "/etc/systemd/system", "/usr/lib/systemd/system"
BREAKS: list[tuple[Callable[[Place], None], set[str]]] = [
    (_cut, {"audit-truncated"}),
    (_lose, {"audit-truncated"}),
    (_flip, {"audit-tampered"}),
    (_future, {"audit-tampered", "clock-behind-audit"}),
    (_damage_policy, {"policy-damaged"}),
    (_lose_policy, {"policy-rolled-back"}),
    (_write("/etc/conductor/workers.yaml", "workers: []\n"), {"configuration-faulty"}),
    (_chmod("/opt/conductor/versions/0.1.0/program", 0o666), {"file-exposed"}),
    (_chmod("/var/lib/conductor", 0o755), {"file-exposed"}),
    (
        _chmod("/etc/conductor/credentials/vendor/frontier", 0o644),
        {"file-exposed", "credential-readable"},
    ),
    (
        lambda place: place.at("/etc/conductor/credentials/vendor/frontier").unlink(),
        {"credential-missing"},
    ),
    (_write(f"{SHIPPED}/conductor.service", "[Service]\n"), {"unit-changed"}),
    (lambda place: place.at(f"{SHIPPED}/conductor.socket").unlink(), {"unit-missing"}),
    (_write(f"{SYSTEM}/conductor.service", "[Service]\n"), {"unit-replaced"}),
    (
        lambda place: place.at(f"{SYSTEM}/conductor.service").symlink_to("/dev/null"),
        {"unit-masked"},
    ),
    (
        _write(f"{SYSTEM}/conductor.service.d/mine.conf", "[Service]\nMemoryMax=8G\n"),
        {"unit-drop-in"},
    ),
    (
        _write(f"{SYSTEM}/conductor.service.d/mine.conf", "[Service]\nPrivateNetwork=no\n"),
        {"unit-weakened"},
    ),
    (
        _write("/run/systemd/system/conductor.service.d/x.conf", "[Service]\nUser=root\n"),
        {"unit-weakened"},
    ),
    (
        _write(f"{SYSTEM}/service.d/x.conf", "[Service]\nNetworkNamespacePath=/proc/1/ns/net\n"),
        {"unit-weakened"},
    ),
    (
        _write(f"{SYSTEM}/conductor-planner.service.d/gpu.conf", "[Service]\nPrivateNetwork=no\n"),
        {"unit-weakened", "gpu-needlessly-open"},
    ),
    (_write("/run/systemd/system/conductor.socket", "[Socket]\n"), {"unit-replaced"}),
    (
        lambda place: (
            place.at("/var/lib/conductor-models").mkdir(mode=0o777, parents=True)
            or place.at("/var/lib/conductor-models").chmod(0o777)
        ),
        {"file-exposed"},
    ),
    (
        _write("/etc/conductor/mode.json", "{"),
        {"mode-damaged", "mode-half-way", "remote-set-aside"},
    ),
    (_write("/etc/conductor/tls/a.crt", "no certificate"), {"certificate-unreadable"}),
    (
        lambda place: shutil.rmtree(place.versions / "versions"),
        {"version-missing"},
    ),
]


@pytest.mark.parametrize(("breaks", "expected"), BREAKS)
def test_what_is_broken_is_named(
    place: Place, breaks: Callable[[Place], None], expected: set[str]
) -> None:
    breaks(place)
    assert findings(place) == expected


def test_the_log_is_left_unread_when_asked(place: Place) -> None:
    _flip(place)
    assert findings(place, "--no-verify") == set()


def test_an_account_of_a_service_that_owns_a_file_is_noticed(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files away takes root")
    os.chown(place.versions / "versions" / "0.1.0" / "program", 65534, 65534)
    assert findings(place) == {"file-exposed"}


def test_the_air_gaps_evidence_is_asked_for_and_does_not_hide_its_limits(place: Place) -> None:
    result = CliRunner().invoke(doctor, ["--root", str(place.root), "--air-gap"])
    assert result.exit_code == 1
    assert "no air gap is declared" in result.output
    assert "what none of this can know" in result.output


def certificate(path: Path, days: int) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding

    key, now = Ed25519PrivateKey.generate(), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "box.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, None)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.public_bytes(Encoding.PEM))


def test_an_expired_certificate_of_nginx_is_found_by_its_configuration(place: Place) -> None:
    certificate(place.at("/etc/ssl/box.pem"), -1)
    site = place.at("/etc/nginx/conf.d/conductor.conf")
    site.parent.mkdir(parents=True)
    site.write_text("server {\n  ssl_certificate /etc/ssl/box.pem;\n  ssl_certificate_key /k;\n}\n")
    assert findings(place) == {"certificate-expired"}


def test_of_a_chain_the_first_to_expire_counts(tmp_path: Path) -> None:
    certificate(tmp_path / "a.pem", 10)
    certificate(tmp_path / "b.pem", 5)
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "a.pem").read_bytes() + (tmp_path / "b.pem").read_bytes())
    assert expiry(both) == expiry(tmp_path / "b.pem")
