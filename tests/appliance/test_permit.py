"""Permits and the gate that reads them: everything that is not exactly right opens nothing."""

from __future__ import annotations

import base64
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Destination, Worker
from conductor.egress.gate import PermitGate
from conductor.egress.permit import (
    REASONS,
    Permit,
    boottime_ns,
    digest,
    generate,
    load_private,
    load_public,
    mint,
    read,
)
from conductor.errors import ConfigError, PermitRefused
from conductor.labels import Clearance
from support.clearances import only
from support.vendor import LATTICE, remote_worker

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key()
BODY = b'{"messages":[]}'
EPOCH = "0" * 32
NOW = 10**12
SECOND = 10**9
PERMIT = Permit(
    id="p1",
    body_sha256=digest(BODY),
    worker="ok",
    destination="frontier",
    label="internal",
    policy_revision=7,
    decision_id="d1",
    epoch=EPOCH,
    expires_boottime_ns=NOW + 20 * SECOND,
)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(payload: bytes) -> str:
    """Rightly signed, by somebody who has the key, over a payload that is no permit."""
    return f"{b64(payload)}.{b64(KEY.sign(b'conductor permit v1' + bytes(1) + payload))}"


def refusal(action: Any, *args: Any) -> str:
    with pytest.raises(PermitRefused) as caught:
        action(*args)
    assert caught.value.reason in REASONS
    return caught.value.reason


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def make_gate(clock: Clock | None = None, *workers: Worker, max_seen: int = 1000) -> PermitGate:
    return PermitGate(
        PUBLIC,
        EPOCH,
        only(workers or (remote_worker(1), remote_worker(1, "other")), LATTICE),
        clock=clock or Clock(),
        max_ttl_s=60.0,
        max_seen=max_seen,
    )


# -- tokens -----------------------------------------------------------------------------------


def test_a_permit_survives_minting_and_reading() -> None:
    token = mint(KEY, PERMIT)
    assert read(PUBLIC, token) == PERMIT
    assert len(token) < 1000
    assert token.isascii()
    assert not set(token) & set(" \r\n,;")


@pytest.mark.parametrize("field", [field.name for field in fields(Permit)])
def test_no_field_can_be_changed_after_signing(field: str) -> None:
    payload, signature = mint(KEY, PERMIT).split(".")
    record = orjson.loads(base64.urlsafe_b64decode(payload + "=="))
    record[field] = record[field] + 1 if isinstance(record[field], int) else record[field] + "x"
    altered = b64(orjson.dumps(record, option=orjson.OPT_SORT_KEYS))
    assert refusal(read, PUBLIC, f"{altered}.{signature}") == "signature"


def test_another_key_is_refused() -> None:
    assert refusal(read, PUBLIC, mint(Ed25519PrivateKey.generate(), PERMIT)) == "signature"


def test_a_signature_made_for_another_purpose_is_refused() -> None:
    payload = base64.urlsafe_b64decode(mint(KEY, PERMIT).split(".")[0] + "==")
    assert refusal(read, PUBLIC, f"{b64(payload)}.{b64(KEY.sign(payload))}") == "signature"


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "a.b",
        mint(KEY, PERMIT) + "=",
        mint(KEY, PERMIT) + "\n",
        mint(KEY, PERMIT).replace(".", ".."),
        mint(KEY, PERMIT).replace(".", ""),
        "é" + mint(KEY, PERMIT),
        "A" * 100_000 + "." + "A" * 86,
        forged(b"{"),
        forged(b"[]"),
        forged(b"null"),
        forged(b"\xff\xfe"),
        forged(orjson.dumps({"id": "p1"})),
        forged(orjson.dumps({**vars(PERMIT), "more": 1})),
        forged(orjson.dumps({**vars(PERMIT), "id": 1})),
        forged(orjson.dumps({**vars(PERMIT), "expires_boottime_ns": True})),
        forged(orjson.dumps({**vars(PERMIT), "expires_boottime_ns": 1e30})),
        forged(orjson.dumps({**vars(PERMIT), "expires_boottime_ns": "9"})),
        forged(b"[" * 900 + b"]" * 900),
    ],
)
def test_what_is_no_permit_is_malformed(token: str) -> None:
    assert refusal(read, PUBLIC, token) == "malformed"


def test_a_token_has_one_spelling() -> None:
    token = mint(KEY, PERMIT)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # The last character of 64 bytes carries four bits that mean nothing.
    twins = [token[:-1] + letter for letter in alphabet if letter != token[-1]]
    assert {refusal(read, PUBLIC, twin) for twin in twins} == {"malformed", "signature"}


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_of_a_token_is_accepted(place: int, change: int) -> None:
    token = bytearray(mint(KEY, PERMIT).encode())
    token[place % len(token)] ^= change
    refusal(read, PUBLIC, token.decode("latin-1"))


@given(st.text(max_size=300))
def test_any_text_at_all_is_refused_with_a_reason(text: str) -> None:
    refusal(read, PUBLIC, text)


def test_a_permit_that_no_header_could_carry_is_not_minted() -> None:
    with pytest.raises(ValueError, match="too long"):
        mint(KEY, replace(PERMIT, label="x" * 5000))


# -- the gate ---------------------------------------------------------------------------------


def test_a_valid_permit_opens_its_worker_once() -> None:
    gate = make_gate()
    permit, worker = gate.check(mint(KEY, PERMIT), BODY, "ok")
    assert (permit, worker.id) == (PERMIT, "ok")
    assert refusal(gate.check, mint(KEY, PERMIT), BODY, "ok") == "replay"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"epoch": "1" * 32}, "epoch"),
        ({"epoch": ""}, "epoch"),
        ({"expires_boottime_ns": NOW}, "expired"),
        ({"expires_boottime_ns": -1}, "expired"),
        ({"expires_boottime_ns": NOW + 61 * SECOND}, "expired"),
        ({"worker": "other"}, "worker"),
        ({"worker": "unknown"}, "worker"),
        ({"destination": "elsewhere"}, "destination"),
        ({"label": "nonsense"}, "label"),
        ({"label": ""}, "label"),
        ({"label": "internal+nonsense"}, "label"),
        ({"label": "confidential"}, "clearance"),
        ({"label": "public+pii"}, "clearance"),
        ({"label": "public+unscanned"}, "clearance"),
        ({"body_sha256": digest(b"other")}, "body"),
        ({"body_sha256": ""}, "body"),
    ],
)
def test_a_permit_for_something_else_is_refused(changed: dict[str, Any], reason: str) -> None:
    token = mint(KEY, replace(PERMIT, **changed))
    assert refusal(make_gate().check, token, BODY, "ok") == reason


def test_a_permit_for_one_worker_does_not_open_another() -> None:
    assert refusal(make_gate().check, mint(KEY, PERMIT), BODY, "other") == "worker"
    assert refusal(make_gate().check, mint(KEY, PERMIT), BODY, "") == "worker"


def test_one_changed_byte_of_the_body_is_refused() -> None:
    assert refusal(make_gate().check, mint(KEY, PERMIT), BODY + b" ", "ok") == "body"


def test_a_local_worker_cannot_be_reached_through_egress() -> None:
    box = Destination("frontier", "local", Clearance(3), {"kind": "local"}, "policy.yaml:1:1")
    gate = make_gate(None, replace(remote_worker(1), destination=box))
    assert refusal(gate.check, mint(KEY, PERMIT), BODY, "ok") == "worker"


def test_what_was_not_scanned_stays_even_if_a_destination_is_cleared_for_it() -> None:
    everything = Clearance(3, LATTICE.compartments)
    gate = make_gate(None, replace(remote_worker(1), clearance=everything))
    token = mint(KEY, replace(PERMIT, label="public+unscanned"))
    assert refusal(gate.check, token, BODY, "ok") == "clearance"
    gate.check(mint(KEY, replace(PERMIT, id="p2", label="restricted+pii")), BODY, "ok")


def test_a_refused_attempt_does_not_use_the_permit_up() -> None:
    gate = make_gate()
    token = mint(KEY, PERMIT)
    assert refusal(gate.check, token, b"altered", "ok") == "body"
    assert refusal(gate.check, token, BODY, "other") == "worker"
    gate.check(token, BODY, "ok")


def test_a_replay_is_refused_before_and_after_the_permit_expires() -> None:
    clock = Clock()
    gate = make_gate(clock)
    gate.check(mint(KEY, PERMIT), BODY, "ok")
    clock.now = PERMIT.expires_boottime_ns - 1
    assert refusal(gate.check, mint(KEY, PERMIT), BODY, "ok") == "replay"
    clock.now += 1
    assert refusal(gate.check, mint(KEY, PERMIT), BODY, "ok") == "expired"


def test_the_memory_of_used_permits_is_bounded_and_full_means_no() -> None:
    clock = Clock()
    gate = make_gate(clock, max_seen=3)
    later = NOW + 50 * SECOND
    for id_, expires in (("a", later), ("b", NOW + SECOND), ("c", later)):
        gate.check(mint(KEY, replace(PERMIT, id=id_, expires_boottime_ns=expires)), BODY, "ok")
    assert refusal(gate.check, mint(KEY, replace(PERMIT, id="d")), BODY, "ok") == "too_many"
    assert refusal(gate.check, mint(KEY, replace(PERMIT, id="a")), BODY, "ok") == "replay"
    clock.now = NOW + SECOND
    gate.check(mint(KEY, replace(PERMIT, id="d")), BODY, "ok")
    assert refusal(gate.check, mint(KEY, replace(PERMIT, id="e")), BODY, "ok") == "too_many"
    assert refusal(gate.check, mint(KEY, replace(PERMIT, id="a")), BODY, "ok") == "replay"


def test_somebody_without_the_key_cannot_fill_the_memory() -> None:
    gate = make_gate(max_seen=1)
    stranger = Ed25519PrivateKey.generate()
    for number in range(50):
        token = mint(stranger, replace(PERMIT, id=str(number)))
        assert refusal(gate.check, token, BODY, "ok") == "signature"
    gate.check(mint(KEY, PERMIT), BODY, "ok")


def test_expiry_is_measured_from_boot_and_not_by_the_wall_clock() -> None:
    before = boottime_ns()
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(before / 1e9 - uptime) < 60


# -- key files --------------------------------------------------------------------------------


def pair(directory: Path) -> tuple[Path, Path]:
    """A generated pair."""
    private, public = directory / "permit.key", directory / "permit.pub"
    generate(private, public)
    return private, public


def test_generated_keys_fit_each_other_and_only_the_owner_reads_the_private_one(
    tmp_path: Path,
) -> None:
    private, public = pair(tmp_path / "permits")
    assert private.stat().st_mode & 0o777 == 0o600
    assert public.stat().st_mode & 0o777 == 0o644
    assert read(load_public(public), mint(load_private(private), PERMIT)) == PERMIT


def test_existing_keys_are_never_overwritten(tmp_path: Path) -> None:
    private, public = pair(tmp_path)
    before = private.read_bytes()
    for missing in (None, private, public):
        if missing is not None:
            missing.unlink()
        with pytest.raises(ConfigError, match="already"):
            generate(private, public)
        if missing is private:
            private.write_bytes(before)
    assert private.read_bytes() == before


def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    private, _ = pair(tmp_path)
    for mode in (0o640, 0o604, 0o660):
        private.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            load_private(private)


def test_a_file_that_is_no_key_is_refused_without_its_content(tmp_path: Path) -> None:
    private, public = pair(tmp_path)
    secret = private.read_text()
    wrong = tmp_path / "wrong"
    wrong.write_text("hunter2\n")
    wrong.chmod(0o600)
    cases = [
        (load_private, wrong),
        (load_public, wrong),
        (load_private, public),
        (load_public, private),
        (load_private, tmp_path / "absent"),
        (load_public, tmp_path),
    ]
    public.chmod(0o600)
    for load, path in cases:
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert "hunter2" not in str(caught.value)
        assert secret.split("\n")[1] not in str(caught.value)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec

    other = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "key"
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="no Ed25519"):
        load_private(path)
    path.write_bytes(
        other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(ConfigError, match="no Ed25519"):
        load_public(path)
