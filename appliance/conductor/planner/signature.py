"""Who vouches for a manifest: `manifest.sig`. Pure: bytes in, bytes or a refusal out.

One line: `ed25519 <sha256 of the public key> <signature>`, both in lower-case hex. The key's
fingerprint proves nothing; it lets a refusal say whose key is missing. The signature (RFC 8032)
covers a domain prefix and the manifest's bytes as they stand, so that nothing else signed with the
same key can pass for a bundle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from conductor.errors import BundleError
from conductor.planner.manifest import Refusal
from conductor.process.keyfiles import fingerprint

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

SIGNATURE_BYTES = len("ed25519 ") + 64 + 1 + 128 + 1

_DOMAIN = b"conductor bundle v1\x00"
_LINE = re.compile(rb"ed25519 ([0-9a-f]{64}) ([0-9a-f]{128})\n")


def sign(key: Ed25519PrivateKey, manifest: bytes) -> bytes:
    """The bytes of `manifest.sig`."""
    signature = key.sign(_DOMAIN + manifest).hex()
    return f"ed25519 {fingerprint(key.public_key())} {signature}\n".encode()


def check(line: bytes, manifest: bytes, trusted: Sequence[Ed25519PublicKey]) -> str:
    """The fingerprint of the trusted key that signed this very manifest.

    Raises `BundleError`: `unsigned` when the line is none, `key`, or `signature`.
    """
    from cryptography.exceptions import InvalidSignature

    match = _LINE.fullmatch(line)
    if match is None:
        raise BundleError(
            Refusal.UNSIGNED, "manifest.sig is no signature: the bundle is unfinished or damaged"
        )
    signer = match[1].decode()
    key = {fingerprint(key): key for key in trusted}.get(signer)
    if key is None:
        raise BundleError(
            Refusal.KEY,
            f"it is signed with key {signer}, which is not trusted here: compare that with the "
            "maker's, then name the public key file under planner.trusted_keys (or with --key)",
        )
    try:
        key.verify(bytes.fromhex(match[2].decode()), _DOMAIN + manifest)
    except InvalidSignature:
        raise BundleError(
            Refusal.SIGNATURE, "the manifest is not what was signed: take a fresh copy"
        ) from None
    return signer
