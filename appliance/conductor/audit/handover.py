"""Keys of one log over time: each is named by the one before it, in a signed note.

A verifier that knows any one of them can follow the log from there on. Hand-overs are repeated in
every checkpoint record, since the record that made one is removed with its segment some day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor.audit.checkpoint import (
    read_note,
    read_verifier_key,
    sign,
    verifier_key,
)
from conductor.audit.keys import same

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from conductor.audit.keys import AuditKey

MAX_REPEATED = 16
"""Hand-overs in a checkpoint record, the latest ones: it must stay a record of ordinary size."""

_HEADLINE = "audit key hand-over"


@dataclass(frozen=True)
class KeyLine:
    """The keys of the log `origin`, oldest first; the last one counts now."""

    origin: str
    keys: tuple[Ed25519PublicKey, ...]

    @property
    def current(self) -> Ed25519PublicKey:
        return self.keys[-1]

    def index(self, key: Ed25519PublicKey) -> int | None:
        """Which of them `key` is."""
        return next((n for n, each in enumerate(self.keys) if same(each, key)), None)

    def after(self, note: str) -> KeyLine:
        """The line with the key that `note` hands over to; raises `ValueError`."""
        signed = read_note(note)
        headline, origin, old, new = signed.text.removesuffix("\n").split("\n")
        if headline != _HEADLINE or origin != self.origin:
            raise ValueError("no hand-over of this log")
        if old != verifier_key(origin, self.current) or not signed.signed_by(origin, self.current):
            raise ValueError("the hand-over is not signed by the key that counted")
        return KeyLine(origin, (*self.keys, _key_of(origin, new)))


def first_key(origin: str, text: str) -> KeyLine:
    """The line that begins with a verifier key; raises `ValueError`."""
    return KeyLine(origin, (_key_of(origin, text),))


def repeated(origin: str, handovers: Sequence[str], current: str) -> KeyLine:
    """The line that a checkpoint record tells: its hand-overs and the key that signed it.

    Raises `ValueError` when one does not follow from the other.
    """
    if not handovers:
        return first_key(origin, current)
    line = first_key(origin, read_note(handovers[0]).text.split("\n")[2])
    for note in handovers:
        line = line.after(note)
    if verifier_key(origin, line.current) != current:
        raise ValueError("the hand-overs do not lead to the key that signed")
    return line


def hand_over(origin: str, old: AuditKey, new: AuditKey) -> str:
    """The signed note by which `old` names `new`."""
    keys = [verifier_key(origin, key.public) for key in (old, new)]
    return sign("\n".join([_HEADLINE, origin, *keys]) + "\n", origin, old.private)


def _key_of(origin: str, text: str) -> Ed25519PublicKey:
    name, key = read_verifier_key(text)
    if name != origin:
        raise ValueError("the key is of another log")
    return key
