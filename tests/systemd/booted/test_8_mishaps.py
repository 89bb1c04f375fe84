"""What can befall a box: each mishap once, what the appliance does, and what doctor calls it."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import ETC, RUN, STATE, ask, call, content, ready, run, show, stop, until

pytestmark = pytest.mark.full

PYTHON = Path("/opt/conductor/current/bin/python")
AUDIT = STATE / "audit"
CONFIG = ETC / "appliance.yaml"
SHIFTS = """
import os, time
shift_ns, real = int(os.environ.get("SHIFT_NS", "0")), time.time_ns
if shift_ns:
    time.time_ns = lambda: real() + shift_ns
"""
EXPIRED = """
import datetime, sys
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes, serialization as to
key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "conductor.example")])
day = datetime.timedelta(days=1)
made = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
made = made.public_key(key.public_key()).not_valid_before(now - 9 * day).not_valid_after(now - day)
pem, plain = to.Encoding.PEM, to.NoEncryption()
open(sys.argv[1], "wb").write(made.sign(key, hashes.SHA256()).public_bytes(pem))
open(sys.argv[2], "wb").write(key.private_bytes(pem, to.PrivateFormat.PKCS8, plain))
"""


def doctor() -> set[str]:
    """The ids of its findings."""
    body = json.loads(run("conductor", "doctor", "--json", check=False))
    return {finding["id"] for finding in body["findings"]}


def restart() -> None:
    run("systemctl", "restart", "conductor.service")
    until(ready, 30)


@contextlib.contextmanager
def drop_in(unit: str, text: str) -> Iterator[None]:
    """A drop-in for as long as the context lasts."""
    file = Path("/run/systemd/system") / f"{unit}.d" / "mishap.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        file.unlink()
        run("systemctl", "daemon-reload")


@contextlib.contextmanager
def configured(old: str, new: str) -> Iterator[None]:
    """Another configuration, and the one before again."""
    before = CONFIG.read_text()
    assert old in before
    CONFIG.write_text(before.replace(old, new))
    try:
        yield
    finally:
        CONFIG.write_text(before)


def test_on_a_full_disk_nothing_is_answered_that_cannot_be_recorded_and_room_is_enough() -> None:
    stop()
    kept = STATE / "kept"
    shutil.copytree(AUDIT, kept)
    run("mount", "-t", "tmpfs", "-o", "size=8m,mode=700,uid=conductor,gid=conductor", "x", AUDIT)
    run("cp", "-a", f"{kept}/.", AUDIT)
    run("chown", "-R", "conductor:conductor", AUDIT)
    try:
        run("systemctl", "start", "conductor.target")
        until(ready, 30)
        run("dd", "if=/dev/zero", f"of={AUDIT}/filler", "bs=4k", check=False)
        # The last page of the log may have room for some records yet.
        until(lambda: ask("Is there room?", "own").status != 200, 20)
        refused = ask("Is there none?", "own")
        assert (refused.status, refused.body["error"]["code"]) == (503, "audit_unavailable")
        assert "disk-full" in doctor()
        (AUDIT / "filler").unlink()
        until(lambda: ask("And now?", "own").status == 200, 20)
    finally:
        stop()
        (AUDIT / "filler").unlink(missing_ok=True)
        run("cp", "-a", f"{AUDIT}/.", kept)  # a log that ends earlier would be one that was cut
        run("umount", AUDIT)
        run("cp", "-a", f"{kept}/.", AUDIT)
        shutil.rmtree(kept)
    run("systemctl", "start", "conductor.target")
    until(ready, 30)


def test_without_its_gpu_the_written_down_rule_plans() -> None:
    gpu = Path("/usr/share/conductor/examples/planner-gpu.conf").read_text()
    with drop_in("conductor-planner.service", gpu), configured("engine: default", "engine: lm"):
        run("systemctl", "restart", "conductor-planner.service", "conductor.service")
        until(ready, 30)
        assert content(ask("Can you plan?"))
        assert "gpu-missing" in doctor()
    run("systemctl", "restart", "conductor-planner.service", "conductor.service")
    until(ready, 30)


def test_a_revoked_key_is_named_until_the_restart_that_ends_it() -> None:
    key = "ck-of-somebody-who-left"
    sha256 = run("sh", "-c", f"printf %s {key} | sha256sum").split()[0]
    entry = f"keys:\n  - id: left\n    sha256: {sha256}\n"
    with configured("keys:\n", entry):
        restart()
        assert call("GET", "/v1/models", key=key).status == 200
    assert "revoked-key-accepted" in doctor()
    restart()
    assert call("GET", "/v1/models", key=key).status == 401
    assert "revoked-key-accepted" not in doctor()


def test_an_expired_certificate_is_refused_by_clients_and_named() -> None:
    tls = Path("/etc/nginx/tls")
    tls.mkdir(parents=True, exist_ok=True)
    run(PYTHON, "-c", EXPIRED, tls / "conductor.crt", tls / "conductor.key")
    shutil.copy(Path("/usr/share/conductor/nginx/conductor.conf"), "/etc/nginx/conf.d")
    run("systemctl", "restart", "nginx.service")
    try:
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            _handshake(tls / "conductor.crt")
        assert "certificate-expired" in doctor()
    finally:
        run("systemctl", "stop", "nginx.service")
        shutil.rmtree(tls)
        Path("/etc/nginx/conf.d/conductor.conf").unlink()


def _handshake(trusted: Path) -> None:
    import socket

    context = ssl.create_default_context(cafile=str(trusted))
    with socket.create_connection(("127.0.0.1", 443), 5) as sock:
        context.wrap_socket(sock, server_hostname="conductor.example").close()


def test_a_worker_whose_socket_lets_the_api_in_no_more_is_named() -> None:
    path = RUN / "workers" / "own.sock"
    mode = path.stat().st_mode & 0o777
    path.chmod(0o600)
    try:
        assert "worker-closed" in doctor()
    finally:
        path.chmod(mode)
    assert "worker-closed" not in doctor()


def test_a_clock_that_was_wrong_is_named_and_stops_nobody() -> None:
    site = next(Path("/opt/conductor/current/lib").glob("python3.*/site-packages"))
    (site / "shifted.py").write_text(SHIFTS)
    (site / "shifted.pth").write_text("import shifted\n")
    try:
        with drop_in("conductor.service", "[Service]\nEnvironment=SHIFT_NS=7200000000000\n"):
            restart()
            assert content(ask("What time is it?", "own"))
            assert "clock-behind-audit" in doctor()
        restart()
        assert content(ask("And now?", "own"))
    finally:
        (site / "shifted.py").unlink()
        (site / "shifted.pth").unlink()


def test_on_a_log_that_was_cut_nothing_starts() -> None:
    stop()
    kept = Path("/root/audit-kept")
    shutil.copytree(AUDIT, kept)
    segment = sorted(AUDIT.glob("audit-*.jsonl"))[-1]
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[: len(lines) // 2]))
    try:
        run("systemctl", "start", "conductor.target", check=False)
        until(lambda: int(show("conductor.service", "NRestarts")) > 0, 60)
        assert not ready()
        assert "audit-truncated" in doctor()
    finally:
        stop()
        shutil.rmtree(AUDIT)
        shutil.copytree(kept, AUDIT)
        run("chown", "-R", "conductor:conductor", AUDIT)
        run("chmod", "-R", "go-rwx", AUDIT)
    run("systemctl", "start", "conductor.target")
    until(ready, 30)
