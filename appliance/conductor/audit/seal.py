"""What a writer knows of a sealed log: key, name and tree, and the records that these make.

Pure: signs and counts, and touches no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from conductor.audit.checkpoint import Checkpoint, sign, verifier_key
from conductor.audit.handover import MAX_REPEATED, hand_over
from conductor.audit.keys import AuditKey
from conductor.audit.merkle import Frontier, leaf_hash
from conductor.audit.record import Fields

SEALED = "sealed"
"""The record that names a log and its first key."""
CHECKPOINT = "checkpoint"
KEY_ROTATED = "key_rotated"
SEGMENT_REMOVED = "segment_removed"


@dataclass(frozen=True)
class Seal:
    """The state after the last durable record. `tree` is not to be changed."""

    key: AuditKey
    chain_key: bytes = field(repr=False)
    """The HMAC key for the records to come."""
    origin: str
    tree: Frontier
    handovers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, key: AuditKey, origin: str, tree: Frontier, handovers: tuple[str, ...] = ()
    ) -> Seal:
        return cls(key, key.chain_key(origin), origin, tree, handovers)

    @property
    def opening(self) -> Fields:
        """Of the `sealed` record."""
        return {"origin": self.origin, "vkey": verifier_key(self.origin, self.key.public)}

    def note(self) -> str:
        """The signed checkpoint over all records so far."""
        text = Checkpoint(self.origin, self.tree.size, self.tree.root).text
        return sign(text, self.origin, self.key.private)

    def checkpoint(self, note: str) -> Fields:
        """Of the record that holds `note`: enough to go on from it without what stands before."""
        return {
            "note": note,
            "frontier": self.tree.hex(),
            "vkey": verifier_key(self.origin, self.key.public),
            "handovers": list(self.handovers),
        }

    def grown(self, lines: Sequence[bytes]) -> Seal:
        """The seal once these lines stand in the log."""
        tree = self.tree.copy()
        for line in lines:
            tree.append(leaf_hash(line))
        return replace(self, tree=tree)

    def handed_over(self, successor: AuditKey) -> tuple[Fields, Seal]:
        """The record that hands over, still under the old key, and the seal for those after it:
        it has yet to be `grown` by that record."""
        note = hand_over(self.origin, self.key, successor)
        handovers = (*self.handovers, note)[-MAX_REPEATED:]
        return {"note": note}, Seal.of(successor, self.origin, self.tree, handovers)
