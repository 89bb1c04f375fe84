"""The key that seals an audit log: where it lies, what is derived from it, how it is replaced.

`audit.key` signs checkpoints, and the key of the chain is derived from it. It never lies in the
log's own folder, which is copied about. A replacement waits as `audit.key.new` until the log says,
under the old key, that the new one counts; so a crash at any moment leaves the key that is needed.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.audit.segments import is_sealed
from conductor.errors import AuditError
from conductor.process import keyfiles

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

PRIVATE_NAME = "audit.key"
PUBLIC_NAME = "audit.pub"
_NEW = ".new"
_PURPOSE = "audit"


@dataclass(frozen=True)
class AuditKey:
    """A sealing key. `successor` is one that may have taken its place already: the log says."""

    private: Ed25519PrivateKey = field(repr=False)
    successor: AuditKey | None = None
    folder: Path | None = None
    """Where it came from; None for a key that is not kept in files."""

    @property
    def public(self) -> Ed25519PublicKey:
        return self.private.public_key()

    def chain_key(self, origin: str) -> bytes:
        """The HMAC key of the chain of one log (32 bytes), derived so that one file is enough."""
        seed = self.private.private_bytes_raw()
        return hmac.digest(seed, b"conductor audit chain v1\n" + origin.encode(), "sha256")


def new_origin(key: Ed25519PublicKey) -> str:
    """The name of a new log, for good: it outlives the key that it is made from."""
    return f"conductor-audit/{keyfiles.fingerprint(key)[:16]}"


def same(one: Ed25519PublicKey, other: Ed25519PublicKey) -> bool:
    return one.public_bytes_raw() == other.public_bytes_raw()


def ensure(folder: Path, log: Path) -> bool:
    """Make the pair in `folder` when there is none; tells whether it was made.

    Raises:
        AuditError: the log in `log` is sealed, so its key must be found, not made anew.
        ConfigError: the files cannot be written.
    """
    if (folder / PRIVATE_NAME).exists():
        return False
    if is_sealed(log):
        raise _missing(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keyfiles.generate(folder / PRIVATE_NAME, folder / PUBLIC_NAME, _PURPOSE)
    return True


def load(folder: Path) -> AuditKey:
    """Read the sealing key, and its successor if one waits.

    Raises:
        AuditError: there is none.
        ConfigError: it cannot be used, or others may read it.
    """
    if not (folder / PRIVATE_NAME).exists():
        raise _missing(folder)
    successor = None
    if (folder / (PRIVATE_NAME + _NEW)).exists():
        successor = AuditKey(
            keyfiles.load_private(folder / (PRIVATE_NAME + _NEW), _PURPOSE), None, folder
        )
    return AuditKey(keyfiles.load_private(folder / PRIVATE_NAME, _PURPOSE), successor, folder)


def load_public(path: Path) -> Ed25519PublicKey:
    """Read `audit.pub`, for whoever verifies. Raises `ConfigError`."""
    return keyfiles.load_public(path, _PURPOSE)


def prepare_successor(folder: Path) -> AuditKey:
    """The current key with a successor beside it, made now or by an attempt that broke off."""
    key = load(folder)
    if key.successor is not None:
        return key
    public = folder / (PUBLIC_NAME + _NEW)
    public.unlink(missing_ok=True)  # of an attempt that never got as far as the private half
    keyfiles.generate(folder / (PRIVATE_NAME + _NEW), public, _PURPOSE)
    return load(folder)


def promote(key: AuditKey) -> None:
    """Put `key`, a successor, in its predecessor's place, whose public half is kept by its
    fingerprint and whose private half is gone. Raises `OSError`."""
    folder = key.folder
    if folder is None:
        return
    old = keyfiles.load_private(folder / PRIVATE_NAME, _PURPOSE).public_key()
    if not same(old, key.public):
        kept = folder / f"audit-{keyfiles.fingerprint(old)[:16]}.pub"
        kept.write_bytes(keyfiles.public_pem(old))
    (folder / PUBLIC_NAME).write_bytes(keyfiles.public_pem(key.public))
    (folder / (PRIVATE_NAME + _NEW)).replace(folder / PRIVATE_NAME)
    (folder / (PUBLIC_NAME + _NEW)).unlink(missing_ok=True)


def fingerprint(key: Ed25519PublicKey) -> str:
    """What people compare over the telephone: SHA-256 of the key, hex."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _missing(folder: Path) -> AuditError:
    return AuditError(
        f"{PRIVATE_NAME}, the key that seals the audit log, is missing from {folder.name}/: put it "
        "back. Should it be lost, move the log away and begin a new one, which verifiers of the "
        "old one will not take for its continuation"
    )
