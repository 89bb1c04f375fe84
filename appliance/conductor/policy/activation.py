"""Reading who must agree before a policy counts.

    approvers: [{id: anna-key, public_key: "base64 of 32 bytes"}]    # Ed25519
    activation: {guardrail_approvals: 2}    # signatures to change guardrails, approvers, or this

Left out: checking signatures, which the room `activation/` does.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from conductor.policy.vocabulary import KEY_ID, KEY_ID_IN_WORDS
from conductor.strictyaml.values import Section, Unique, Value

KEY_BYTES = 32
"""Of an Ed25519 public key (RFC 8032, section 5.1.5)."""
MOST_APPROVALS = 2


@dataclass(frozen=True)
class Approver:
    """A person's key, by which they sign policies and approve data."""

    id: str
    public_key: bytes
    position: str = ""


def read_approvers(items: list[Value]) -> tuple[Approver, ...]:
    """The section `approvers`. Each key may stand there once, or one person could sign twice."""
    ids, keys = Unique(), Unique()
    found = []
    for item in items:
        section = item.mapping()
        name = section.text("id", pattern=KEY_ID, want=KEY_ID_IN_WORDS)
        approver = Approver(name, _public_key(section), str(section.position))
        ids.check(section, "id", name)
        keys.check(section, "public_key", approver.public_key)
        section.done()
        found.append(approver)
    return tuple(found)


def read_guardrail_approvals(section: Section, approvers: tuple[Approver, ...]) -> int:
    """How many approvers must sign a change of guardrails, of approvers, or of this number."""
    needed = section.integer("guardrail_approvals", 0, high=MOST_APPROVALS)
    section.done()
    if needed > len(approvers):
        message = "needs at least as many approvers, or nobody could change the guardrails again"
        section.fault("too-few-approvers", message, "guardrail_approvals")
    return needed


def _public_key(section: Section) -> bytes:
    text = section.text("public_key")
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if text and len(key) != KEY_BYTES:
        message = f"must be an Ed25519 public key: {KEY_BYTES} bytes in base64"
        section.fault("bad-value", message, "public_key")
        return b""
    return key
