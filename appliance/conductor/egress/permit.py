"""Permits: signed leave to send exactly these bytes to exactly this worker, once, soon.

`serve` mints one before every attempt at a remote worker, `egress` reads it. A token is
`base64url(json).base64url(signature)`, without padding, signed with Ed25519 (RFC 8032) over a
domain prefix and the JSON bytes as they stand, so that nothing else signed with the same key can
pass for a permit.

Expiry is measured on CLOCK_BOOTTIME: minter and reader share one kernel, and neither an NTP step
nor a person who sets the wall clock back can revive an old permit. It goes on counting while the
machine sleeps, which CLOCK_MONOTONIC does not.

Left out on purpose: whether a permit may be used here and now. That is `egress/gate.py`.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from conductor import signedtoken
from conductor.errors import PermitRefused
from conductor.process import keyfiles

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

MALFORMED = "malformed"
SIGNATURE = "signature"
EXPIRED = "expired"
BODY = "body"
WORKER = "worker"
DESTINATION = "destination"
LABEL = "label"
EPOCH = "epoch"
REVISION = "revision"
REPLAY = "replay"
CLEARANCE = "clearance"
TOO_MANY = "too_many"

REASONS = frozenset(
    {
        MALFORMED,
        SIGNATURE,
        EXPIRED,
        BODY,
        WORKER,
        DESTINATION,
        LABEL,
        EPOCH,
        REVISION,
        REPLAY,
        CLEARANCE,
        TOO_MANY,
    }
)
"""Every reason that `PermitRefused` carries; fit for a metric label."""


_PURPOSE = "permit"
_DOMAIN = b"conductor permit v1\x00"
_MAX_TOKEN = 4096


@dataclass(frozen=True)
class Permit:
    """What one attempt may do. Everything is public but the signature that goes with it."""

    id: str
    """Single use: egress remembers it until it expires."""
    body_sha256: str
    worker: str
    destination: str
    label: str
    """Text form of the label of the body, as `Lattice.show` writes it."""
    policy_revision: int
    decision_id: str
    epoch: str
    """Which run of the egress process it is for: a restart forgets the ids it has seen."""
    expires_boottime_ns: int


def boottime_ns() -> int:
    """Nanoseconds since this machine booted, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def digest(body: bytes) -> str:
    """The form in which a permit names a body: SHA-256, lower-case hex."""
    return hashlib.sha256(body).hexdigest()


def mint(private_key: Ed25519PrivateKey, permit: Permit) -> str:
    """Sign a permit. The token fits in an HTTP header. Raises `ValueError` when it would not."""
    payload = orjson.dumps(asdict(permit), option=orjson.OPT_SORT_KEYS)
    token = signedtoken.written(payload, private_key.sign(_DOMAIN + payload))
    if len(token) > _MAX_TOKEN:
        raise ValueError("a permit's names are too long for a header")
    return token


def read(public_key: Ed25519PublicKey, token: str) -> Permit:
    """Check form and signature, and nothing else. Raises `PermitRefused`."""
    from cryptography.exceptions import InvalidSignature

    payload, signature = _parts(token)
    try:
        public_key.verify(signature, _DOMAIN + payload)
    except InvalidSignature:
        raise PermitRefused(SIGNATURE) from None
    return _permit(payload)


def _parts(token: str) -> tuple[bytes, bytes]:
    try:
        return signedtoken.parts(token)
    except ValueError:
        raise PermitRefused(MALFORMED) from None


def _permit(payload: bytes) -> Permit:
    try:
        record = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise PermitRefused(MALFORMED) from None
    wanted = {field.name: int if field.type == "int" else str for field in fields(Permit)}
    if not isinstance(record, dict) or record.keys() != wanted.keys():
        raise PermitRefused(MALFORMED)
    # `type() is` and not isinstance: true is an int to Python.
    if any(type(record[name]) is not kind for name, kind in wanted.items()):
        raise PermitRefused(MALFORMED)
    return Permit(**record)


# -- key files --------------------------------------------------------------------------------


def generate(private: Path, public: Path) -> None:
    """Make a key pair as PEM: one for `serve` (0600), one for egress (0644).

    Raises `ConfigError` when either is there already: replacing a key is a person's decision.
    """
    private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    public.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    keyfiles.generate(private, public, _PURPOSE)


def load_private(path: Path) -> Ed25519PrivateKey:
    """Read the minting key. Raises `ConfigError`, also when others may read the file."""
    return keyfiles.load_private(path, _PURPOSE)


def load_public(path: Path) -> Ed25519PublicKey:
    """Read the checking key. Raises `ConfigError`."""
    return keyfiles.load_public(path, _PURPOSE)
