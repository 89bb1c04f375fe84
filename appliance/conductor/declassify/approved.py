"""A person's approval: exactly these bytes, so labelled, to that destination, once, soon.

    book.ask(...)       serve: nobody has approved this yet; a request waits under an id
    mint(key, ...)      the approver: has read the very bytes, and signs
    book.check(...)     serve: the signature is an approver's, for a request that waits
    book.accept(...)    serve: it counts, once it is on record
    book.take(...)      serve, before the permit: lets these bytes through, once

What is signed names a request that waits here, so there is no wall clock in it to be set back and
no second use: a request's time runs from when it was asked for, on a clock that goes on while the
machine sleeps. After a restart all must be asked anew. A token is `base64url(json).base64url
(signature)` without padding, Ed25519 (RFC 8032) over a domain prefix and the JSON as it stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import orjson

from conductor import signedtoken
from conductor.errors import ConductorError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_DOMAIN = b"conductor approval v1\x00"


class ApprovalRefused(ConductorError):
    """An approval does not count. `reason` is one word from a closed list, fit for metrics:
    `malformed`, `key`, `signature`, `body`, `unknown`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"approval refused: {reason}")


@dataclass(frozen=True)
class Approval:
    """What is approved. Names and hashes only: it may be shown, sent and logged."""

    request: str
    """Id of the request that waits for it; drawn at random, used once."""
    declassifier: str
    sha256: str
    """Of the exact bytes, lower-case hex."""
    label: str
    """Text form of the label before it is lowered."""
    destination: str


def digest(body: bytes) -> str:
    """The form in which an approval names bytes."""
    return hashlib.sha256(body).hexdigest()


def mint(private_key: Ed25519PrivateKey, approver: str, approval: Approval, body: bytes) -> str:
    """Sign an approval of `body`, which the approver has been shown.

    Raises `ApprovalRefused`: `body`, when these are not the bytes that the request is for.
    """
    if digest(body) != approval.sha256:
        raise ApprovalRefused("body")
    record = {"approver": approver, **asdict(approval)}
    payload = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    return signedtoken.written(payload, private_key.sign(_DOMAIN + payload))


def verify(token: str, approvers: Mapping[str, Ed25519PublicKey]) -> tuple[Approval, str]:
    """The approval in a token and whose it is. `approvers`: keys that count, by id.

    Raises `ApprovalRefused`: `malformed`, `key` or `signature`.
    """
    from cryptography.exceptions import InvalidSignature

    payload, signature = _parts(token)
    record = _record(payload)
    approver = record.pop("approver")
    if approver not in approvers:
        raise ApprovalRefused("key")
    try:
        approvers[approver].verify(signature, _DOMAIN + payload)
    except InvalidSignature:
        raise ApprovalRefused("signature") from None
    return Approval(**record), approver


def named_in(token: str) -> tuple[str, str]:
    """The request and the approver that a token names, unverified. Raises `ApprovalRefused`:
    `malformed`."""
    record = _record(_parts(token)[0])
    return str(record["request"]), str(record["approver"])


def _parts(token: str) -> tuple[bytes, bytes]:
    try:
        return signedtoken.parts(token)
    except ValueError:
        raise ApprovalRefused("malformed") from None


def _record(payload: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise ApprovalRefused("malformed") from None
    wanted = {"approver", *(field.name for field in fields(Approval))}
    if not isinstance(record, dict) or record.keys() != wanted:
        raise ApprovalRefused("malformed")
    if not all(isinstance(value, str) for value in record.values()):
        raise ApprovalRefused("malformed")
    return record
