"""Ed25519 key pairs in PEM files: making them, and reading them without trusting the file.

`purpose` names a key in messages ("bundle"): an operator has several pairs.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.errors import ConfigError, Fault
from conductor.process.newfile import write_new

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_MAX_PEM_BYTES = 16 * 1024


def generate(private: Path, public: Path, purpose: str) -> Ed25519PublicKey:
    """Make a pair: `private` for its owner alone (0600), `public` for everybody (0644).

    Raises `ConfigError`, also when either is there already: replacing a key is a person's decision.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    for path in (private, public):
        if os.path.lexists(path):
            raise _fault(path, purpose, "is there already; remove both files to make new ones")
    key = Ed25519PrivateKey.generate()
    private_pem = _private_pem(key)
    try:
        # In this order, so that nobody is handed a public key whose other half was never kept.
        write_new(private, private_pem, 0o600)
        write_new(public, public_pem(key.public_key()), 0o644)
    except OSError as error:
        raise _fault(public, purpose, f"cannot be written ({error.strerror})") from None
    return key.public_key()


def public_pem(key: Ed25519PublicKey) -> bytes:
    """What a public key file holds."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _private_pem(key: Ed25519PrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load_private(path: Path, purpose: str) -> Ed25519PrivateKey:
    """Raises `ConfigError`, also when others than its owner may read or write the file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data, mode = _read(path, purpose)
    if mode & 0o077:
        raise _fault(path, purpose, "can be read by others; run chmod 600 on it")
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _fault(path, purpose, "is no unencrypted PEM private key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _fault(path, purpose, "is no Ed25519 key")
    return key


def load_public(path: Path, purpose: str) -> Ed25519PublicKey:
    """Raises `ConfigError`, also for a private key: that one belongs on no other machine."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data, _ = _read(path, purpose)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise _fault(path, purpose, "is no PEM public key") from None
    if not isinstance(key, Ed25519PublicKey):
        raise _fault(path, purpose, "is no Ed25519 key")
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """What people compare over the telephone: SHA-256 of the 32 key bytes, lower-case hex."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _read(path: Path, purpose: str) -> tuple[bytes, int]:
    """Bytes and mode of one and the same file, whatever is put in its place meanwhile."""
    try:
        # Non-blocking: a pipe in a key's place must not hold up the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise _fault(path, purpose, "is no regular file")
            data = file.read(_MAX_PEM_BYTES + 1)
    except OSError as error:
        raise _fault(path, purpose, f"cannot be read ({error.strerror})") from None
    if len(data) > _MAX_PEM_BYTES:
        raise _fault(path, purpose, "is too long for a key")
    return data, mode


def _fault(path: Path, purpose: str, message: str) -> ConfigError:
    return ConfigError([Fault(str(path), 1, 1, f"{purpose}-key", f"the {purpose} key {message}")])
