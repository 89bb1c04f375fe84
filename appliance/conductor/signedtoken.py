"""The form of permits and approvals: `base64url(payload).base64url(signature)`, without padding.

Only the form: what a payload says, and what is signed over it, is its owner's. Each token has one
spelling, so that none can be told apart from itself by how it is written.
"""

from __future__ import annotations

import base64
import binascii
import re

_TOKEN = re.compile(r"([A-Za-z0-9_-]{2,3900})\.([A-Za-z0-9_-]{86})")


def written(payload: bytes, signature: bytes) -> str:
    """The token. It fits in an HTTP header as long as the payload does."""
    return f"{_encode(payload)}.{_encode(signature)}"


def parts(token: str) -> tuple[bytes, bytes]:
    """Payload and signature (64 bytes, Ed25519), neither of them checked. Raises `ValueError` for
    what is no token."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ValueError("no token")
    return _decode(match[1]), _decode(match[2])


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes:
    """The one spelling of these bytes: stray low bits in the last character are refused."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("no token") from None
    if _encode(data) != text:
        raise ValueError("no token")
    return data
