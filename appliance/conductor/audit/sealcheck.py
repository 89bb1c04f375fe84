"""Following the seal of a log, record by record: its keys, its tree, what was signed and removed.

Needs public keys only. With the private key, MACs are checked too: for records that no checkpoint
covers yet, they are all that there is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from conductor.audit.checkpoint import (
    MALFORMED,
    Checkpoint,
    Note,
    read_checkpoint,
    read_note,
    verifier_key,
)
from conductor.audit.handover import KeyLine, first_key, repeated
from conductor.audit.keys import fingerprint, same
from conductor.audit.merkle import Frontier, leaf_hash
from conductor.audit.record import mac_holds
from conductor.audit.seal import CHECKPOINT, KEY_ROTATED, SEALED, SEGMENT_REMOVED

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from conductor.audit.keys import AuditKey

Kind = Literal["json", "sequence", "hash", "time", "key", "mac", "checkpoint", "removed"]
Fault = tuple[Kind, str]
State = Literal["holds", "differs", "cut", "removed", "unsigned"]

_MAC = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Sealing:
    """What was proven about a sealed log. Numbers are those of records."""

    origin: str
    keys: tuple[str, ...]
    """Fingerprints, oldest first. Somebody has to vouch for one of them."""
    checkpoints: int
    signed_to: int
    """The last record that a checkpoint covers."""
    macs: int
    """Records whose MAC was checked; 0 without the private key."""


@dataclass(frozen=True)
class AnchorResult:
    """A checkpoint kept elsewhere, beside the log.

    `differs`: the log was written anew; `cut`: it ends before; `removed`: it begins after;
    `unsigned`: none of the log's keys signed it.
    """

    size: int
    state: State


class SealCheck:
    """The state carried from record to record. `tree` covers every record seen."""

    def __init__(
        self, trust: Ed25519PublicKey | None, key: AuditKey | None, anchors: Sequence[Note]
    ) -> None:
        """Raises `ValueError` when an anchor is no checkpoint."""
        self.tree = Frontier()
        self.root_at: dict[int, bytes] = {}
        self.first_seq = 1
        self.removal_seq = 0
        """The last record that says that everything before `first_seq` was removed."""
        self.signed_to = 0
        self._trusted_to = 0
        self._checkpoints = 0
        self._macs = 0
        self._line: KeyLine | None = None
        self._trust = trust
        self._key = key
        self._chain_key = b""
        self._anchors = [(note, read_checkpoint(note)) for note in anchors]
        self._wanted = {said.size for _, said in self._anchors}
        self._note_root()

    def begin(self, record: dict[str, Any]) -> Fault | None:
        """Start from a checkpoint record that has nothing before it."""
        try:
            tree = Frontier.from_hex(record["seq"] - 1, record["frontier"])
            said = read_checkpoint(read_note(record["note"]))
            line = repeated(said.origin, record["handovers"], record["vkey"])
        except MALFORMED:
            return "checkpoint", "the log begins with a checkpoint that cannot be read"
        self.tree, self.first_seq = tree, record["seq"]
        self._note_root()
        self._set_line(line)
        return None

    def take(self, line: bytes, record: dict[str, Any]) -> Fault | None:
        """Check a record against the state before it, and count it in."""
        try:
            fault = self._look_at(record)
        except MALFORMED:
            return "checkpoint", "what it says of the seal cannot be read, or does not follow"
        if fault is None:
            self.tree.append(leaf_hash(line))
            self._note_root()
        return fault

    def _look_at(self, record: dict[str, Any]) -> Fault | None:
        event = record["event"]
        if event == SEALED:
            if self._line is not None:
                return "key", "the log is sealed a second time"
            self._set_line(first_key(record["origin"], record["vkey"]))
        fault = self._check_mac(record)
        if fault is not None:
            return fault
        if event == CHECKPOINT:
            return self._check_checkpoint(record)
        if event == KEY_ROTATED:
            if self._line is None:
                return "key", "a key is handed over in a log that has none"
            self._set_line(self._line.after(record["note"]))
        if event == SEGMENT_REMOVED and record["last_seq"] == self.first_seq - 1:
            self.removal_seq = record["seq"]
        return None

    def _check_mac(self, record: dict[str, Any]) -> Fault | None:
        if self._line is None:
            return None
        if not _MAC.fullmatch(str(record.get("mac"))):
            return "mac", "a record of a sealed log holds no MAC"
        if self._chain_key:
            self._macs += 1
            if not mac_holds(record, self._chain_key):
                return "mac", "it was not written with the key of this log"
        return None

    def _check_checkpoint(self, record: dict[str, Any]) -> Fault | None:
        note = read_note(record["note"])
        said = read_checkpoint(note)
        line = self._line
        if line is None or said.origin != line.origin:
            return "checkpoint", "the checkpoint is of another log"
        if said.size != self.tree.size:
            return "checkpoint", f"the checkpoint is for {said.size} records: an old one, repeated"
        if said.root != self.tree.root or record["frontier"] != self.tree.hex():
            return "checkpoint", "the records before it are not those that were signed"
        if record["vkey"] != verifier_key(line.origin, line.current):
            return "checkpoint", "it names a key that was never handed the log"
        if not note.signed_by(line.origin, line.current):
            return "checkpoint", "its signature is not that of the log's key"
        self._checkpoints += 1
        self.signed_to = said.size
        if self._trust is not None and line.index(self._trust) is not None:
            self._trusted_to = said.size
        return None

    def _set_line(self, line: KeyLine) -> None:
        self._line = line
        mine = self._key is not None and same(self._key.public, line.current)
        self._chain_key = self._key.chain_key(line.origin) if self._key and mine else b""

    def _note_root(self) -> None:
        if self.tree.size in self._wanted:
            self.root_at[self.tree.size] = self.tree.root

    @property
    def trusted(self) -> bool | None:
        """Whether the given key, or one that it handed over to, signed what was read; None when
        no key was given."""
        return None if self._trust is None else self._trusted_to > 0

    def sealing(self) -> Sealing | None:
        """What was proven; None for a log without seal."""
        line = self._line
        if line is None:
            return None
        keys = tuple(fingerprint(key) for key in line.keys)
        return Sealing(line.origin, keys, self._checkpoints, self.signed_to, self._macs)

    def anchored(self) -> tuple[AnchorResult, ...]:
        """Every anchor, beside what was read."""
        return tuple(
            AnchorResult(said.size, self._state(note, said)) for note, said in self._anchors
        )

    def _state(self, note: Note, said: Checkpoint) -> State:
        if said.size > self.tree.size:
            return "cut"
        root = self.root_at.get(said.size)
        if root is None:
            return "removed"
        if root != said.root:
            return "differs"
        line = self._line
        if line is None or said.origin != line.origin:
            return "unsigned"
        return "holds" if any(note.signed_by(line.origin, k) for k in line.keys) else "unsigned"
