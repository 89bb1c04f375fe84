"""Signatures of approvers under a candidate policy: Ed25519, bound to its exact bytes and revision.

What is signed is SHA-256 over a name for the purpose, the candidate's SHA-256 and its revision, so
that a signature made here means nothing elsewhere, nor for any other policy. Whose signatures count
is said by the policy that is *active*: a candidate cannot appoint its own approvers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from conductor.errors import ConfigError, Fault

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

API_VERSION = "conductor/v1"
KIND = "PolicyApprovals"
SUFFIX = ".approvals.json"
"""Of the file beside a candidate."""
MAX_APPROVALS = 16

_DOMAIN = b"conductor/v1 approval of a routing policy\0"


@dataclass(frozen=True)
class Approval:
    """One signature. `key` is the fingerprint of who made it: SHA-256 of the public key, hex."""

    key: str
    signature: bytes

    def facts(self) -> dict[str, str]:
        """As it stands in a file."""
        return {"key": self.key, "signature": base64.b64encode(self.signature).decode("ascii")}


def digest(sha256: str, revision: int) -> bytes:
    """What approvers sign of the candidate with this SHA-256 (hex) and revision."""
    return hashlib.sha256(_DOMAIN + bytes.fromhex(sha256) + revision.to_bytes(8, "big")).digest()


def approve(key: Ed25519PrivateKey, sha256: str, revision: int) -> Approval:
    """Sign a candidate."""
    from conductor.process.keyfiles import fingerprint

    return Approval(fingerprint(key.public_key()), key.sign(digest(sha256, revision)))


def approved_by(
    approvals: Iterable[Approval], sha256: str, revision: int, approvers: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Ids of the `approvers` (id to 32 bytes of public key) whose signature holds, each key once,
    sorted. A signature that does not hold counts for nothing."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    message = digest(sha256, revision)
    found: dict[str, str] = {}
    for name, public in sorted(approvers.items()):
        finger = hashlib.sha256(public).hexdigest()
        for approval in approvals:
            if approval.key != finger:
                continue
            try:
                Ed25519PublicKey.from_public_bytes(public).verify(approval.signature, message)
            except (InvalidSignature, ValueError):
                continue
            found.setdefault(finger, name)  # two ids of one key are one person
    return tuple(sorted(found.values()))


def written(approvals: Iterable[Approval], sha256: str, revision: int) -> bytes:
    """The file of approvals."""
    body = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "sha256": sha256,
        "revision": revision,
        "approvals": [approval.facts() for approval in approvals],
    }
    return orjson.dumps(body, option=orjson.OPT_INDENT_2) + b"\n"


def read_approvals(data: bytes, file: str) -> tuple[Approval, ...]:
    """The approvals in a file. Raises `ConfigError`; whether they hold is asked later."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise _fault(file, "is no JSON") from None
    return of_facts(body.get("approvals") if isinstance(body, dict) else None, file)


def of_facts(items: Any, file: str = "approvals") -> tuple[Approval, ...]:
    """Approvals from JSON: a list of `{key, signature}`. Raises `ConfigError`."""
    if not isinstance(items, list) or len(items) > MAX_APPROVALS:
        raise _fault(file, f"must hold a list of at most {MAX_APPROVALS} approvals")
    return tuple(_approval(item, file) for item in items)


def _approval(item: Any, file: str) -> Approval:
    try:
        key, signature = item["key"], base64.b64decode(item["signature"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise _fault(file, "holds an approval that is not {key, signature}") from None
    if not isinstance(key, str) or len(key) != 64 or len(signature) != 64:
        raise _fault(file, "holds an approval that is not {key, signature}")
    return Approval(key, signature)


def _fault(file: str, message: str) -> ConfigError:
    return ConfigError([Fault(file, 1, 1, "approvals", f"the file of approvals {message}")])
