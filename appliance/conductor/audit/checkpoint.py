"""Signed notes, and the one that is a checkpoint: origin, size and root of the tree of records.

The forms are those of C2SP `signed-note` and `tlog-checkpoint`, so that the transparency tools of
others read ours: a text, an empty line, then one line a signature, with the first four bytes of
SHA-256(name, newline, 0x01, public key) before the 64 bytes of Ed25519. A verifier key is written
as those tools expect it: `name+id+base64(0x01 public key)`.

Left out: key files (`keys.py`), and whether a root is the right one (`verify.py`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

MAX_NOTE_BYTES = 4096
"""Room for sixteen signatures beside ours; more is no checkpoint."""

MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError)
"""What reading a seal out of a record can raise: records hold whatever an attacker likes."""

_ED25519 = b"\x01"
_SIGNATURE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/=]+)")
_CHECKPOINT = re.compile(r"([^\n]+)\n(0|[1-9][0-9]{0,17})\n([A-Za-z0-9+/]{43}=)\n")


@dataclass(frozen=True)
class Note:
    """A text and who signed it; nothing about it has been checked yet."""

    text: str
    signatures: tuple[tuple[str, bytes], ...]
    """Name, and key id with signature."""

    def signed_by(self, name: str, key: Ed25519PublicKey) -> bool:
        """Whether `key`, under that name, signed exactly this text."""
        from cryptography.exceptions import InvalidSignature

        mine = key_id(name, key)
        for signer, signature in self.signatures:
            if signer == name and signature[:4] == mine:
                try:
                    key.verify(signature[4:], self.text.encode())
                except InvalidSignature:
                    return False
                return True
        return False


@dataclass(frozen=True)
class Checkpoint:
    """What is signed: the tree of the first `size` records of the log `origin` has this root."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def sign(text: str, name: str, key: Ed25519PrivateKey) -> str:
    """The signed note of `text`, which ends in a newline."""
    signature = key_id(name, key.public_key()) + key.sign(text.encode())
    return f"{text}\n— {name} {base64.b64encode(signature).decode()}\n"


def read_note(note: str) -> Note:
    """Take a note apart; raises `ValueError` when it is none."""
    text, gap, lines = note.rpartition("\n\n")
    if not gap or len(note) > MAX_NOTE_BYTES or not lines.endswith("\n"):
        raise ValueError("no signed note")
    return Note(text + "\n", tuple(_signature(line) for line in lines[:-1].split("\n")))


def _signature(line: str) -> tuple[str, bytes]:
    match = _SIGNATURE.fullmatch(line)
    if match is None:
        raise ValueError("no signature line")
    return match[1], _decode(match[2])


def read_checkpoint(note: Note) -> Checkpoint:
    """What a checkpoint says; raises `ValueError` when the note is none. Extension lines, which
    the form allows and which we never write, are refused: they might say anything."""
    match = _CHECKPOINT.fullmatch(note.text)
    if match is None:
        raise ValueError("no checkpoint")
    return Checkpoint(match[1], int(match[2]), _decode(match[3]))


def key_id(name: str, key: Ed25519PublicKey) -> bytes:
    """Four bytes by which a signature names its key: no proof of anything."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + key.public_bytes_raw()).digest()[:4]


def verifier_key(name: str, key: Ed25519PublicKey) -> str:
    """The public key with its name, in one line."""
    encoded = base64.b64encode(_ED25519 + key.public_bytes_raw()).decode()
    return f"{name}+{key_id(name, key).hex()}+{encoded}"


def read_verifier_key(text: str) -> tuple[str, Ed25519PublicKey]:
    """Name and key; raises `ValueError`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    name, _, rest = text.partition("+")
    raw = _decode(rest.partition("+")[2])
    if len(raw) != 33 or raw[:1] != _ED25519:
        raise ValueError("no Ed25519 verifier key")
    key = Ed25519PublicKey.from_public_bytes(raw[1:])
    if verifier_key(name, key) != text:
        raise ValueError("no verifier key: its id is not that of its name and key")
    return name, key


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
