"""The Merkle tree over the records, as in RFC 6962 section 2.1: one leaf a record, in their order.

A tree of any size is known by its frontier: the roots of the full subtrees it is made of, largest
first, at most one for each bit of the size. Leaves are added, and the root is had, from these
alone: neither writer nor verifier ever holds the leaves.

Left out: what a leaf is (`log.py`: a line without its newline) and who signs a root
(`checkpoint.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

EMPTY_ROOT = hashlib.sha256().digest()


def leaf_hash(line: bytes) -> bytes:
    """The leaf of one record: 0x00 keeps it from passing for an inner node."""
    return hashlib.sha256(b"\0" + line).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """An inner node over its two halves."""
    return hashlib.sha256(b"\1" + left + right).digest()


class Frontier:
    """A growing tree of `size` leaves."""

    def __init__(self, size: int = 0, hashes: Sequence[bytes] = ()) -> None:
        """Raises `ValueError` when these hashes cannot be the frontier of a tree of that size."""
        if size < 0 or len(hashes) != size.bit_count() or any(len(each) != 32 for each in hashes):
            raise ValueError("no frontier of a tree of this size")
        self.size = size
        self._hashes = list(hashes)

    @classmethod
    def from_hex(cls, size: int, hashes: Sequence[str]) -> Frontier:
        """Read what `hex` gave; raises `ValueError`."""
        return cls(size, [bytes.fromhex(each) for each in hashes])

    def copy(self) -> Frontier:
        return Frontier(self.size, self._hashes)

    def hex(self) -> list[str]:
        """The hashes, largest subtree first."""
        return [each.hex() for each in self._hashes]

    def append(self, leaf: bytes) -> None:
        """Add the hash of one leaf: one inner node on average."""
        rest = self.size
        while rest & 1:
            leaf = node_hash(self._hashes.pop(), leaf)
            rest >>= 1
        self._hashes.append(leaf)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The tree's root."""
        if not self._hashes:
            return EMPTY_ROOT
        *larger, root = self._hashes
        for left in reversed(larger):
            root = node_hash(left, root)
        return root
