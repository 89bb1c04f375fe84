"""Verify an audit log of the Conductor appliance: one file, which needs nothing of the appliance.

    python standalone.py DIRECTORY --signed-by audit.pub --anchor CHECKPOINT

Needs Python 3.10 and the package `cryptography`. Take this file from a source that you trust, not
from the machine whose log it is to judge; the key and the anchors likewise.

Written apart from the appliance's own verifier, on purpose: what both accept, two readings of the
format accept. It shares no code with it, and leaves MACs, which need the private key, to it.

Exit code 0: everything holds. 1: it does not; the first record that is wrong is named. 2: there
was nothing to check. What a log is made of is written in docs/audit.md.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

MAX_LINE = 16384
GENESIS = "0" * 64
HANDOVER = "audit key hand-over"


class Bad(Exception):
    """The first thing that is wrong."""


# -- the tree: RFC 6962 -----------------------------------------------------------------------


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def add_leaf(subtrees: list[tuple[int, bytes]], line: bytes) -> None:
    """Subtrees are (leaves, root), largest first; two of one size become one."""
    subtrees.append((1, sha(b"\0", line)))
    while len(subtrees) > 1 and subtrees[-1][0] == subtrees[-2][0]:
        (leaves, right), (_, left) = subtrees.pop(), subtrees.pop()
        subtrees.append((2 * leaves, sha(b"\1", left, right)))


def root_of(subtrees: list[tuple[int, bytes]]) -> bytes:
    if not subtrees:
        return sha()
    root = subtrees[-1][1]
    for _, left in reversed(subtrees[:-1]):
        root = sha(b"\1", left, root)
    return root


def subtrees_from(size: int, hashes: list[str]) -> list[tuple[int, bytes]]:
    sizes = [1 << bit for bit in range(size.bit_length() - 1, -1, -1) if size >> bit & 1]
    if len(sizes) != len(hashes):
        raise Bad("its subtree hashes do not fit its size")
    return [(leaves, bytes.fromhex(each)) for leaves, each in zip(sizes, hashes, strict=True)]


# -- signed notes and keys: C2SP --------------------------------------------------------------


def key_id(name: str, key: bytes) -> bytes:
    return sha(name.encode(), b"\n\x01", key)[:4]


def split_note(note: str) -> tuple[str, list[str]]:
    text, gap, signatures = note.rpartition("\n\n")
    if not gap:
        raise Bad("it holds no signed note")
    return text + "\n", signatures.splitlines()


def is_signed(note: str, name: str, key: bytes) -> bool:
    text, signatures = split_note(note)
    for line in signatures:
        dash, signer, encoded = line.split(" ")
        raw = base64.b64decode(encoded, validate=True)
        if (dash, signer, raw[:4]) != ("—", name, key_id(name, key)):
            continue
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(raw[4:], text.encode())
        except InvalidSignature:
            return False
        return True
    return False


def read_checkpoint(note: str) -> tuple[str, int, bytes]:
    text, _ = split_note(note)
    match = re.fullmatch(r"([^\n]+)\n(0|[1-9][0-9]*)\n([A-Za-z0-9+/]{43}=)\n", text)
    if match is None:
        raise Bad("it holds no checkpoint")
    return match[1], int(match[2]), base64.b64decode(match[3])


def read_key(text: str, origin: str) -> bytes:
    name, identity, encoded = text.split("+", 2)
    raw = base64.b64decode(encoded, validate=True)
    if name != origin or raw[:1] != b"\x01" or identity != key_id(name, raw[1:]).hex():
        raise Bad("it names a key in a way that does not fit")
    return raw[1:]


def load_key(path: Path) -> bytes:
    key = load_pem_public_key(path.read_bytes())
    if not isinstance(key, Ed25519PublicKey):
        raise Bad("the key is not Ed25519")
    return key.public_bytes_raw()


# -- the log ----------------------------------------------------------------------------------


class Log:
    """What is known after each record."""

    def __init__(self, trusted_key: bytes | None, anchors: list[str]) -> None:
        self.trusted_key = trusted_key
        self.anchors = [(note, *read_checkpoint(note)) for note in anchors]
        self.roots: dict[int, bytes] = {}
        self.subtrees: list[tuple[int, bytes]] = []
        self.origin = ""
        self.keys: list[bytes] = []
        self.seq = 0
        self.first = 1
        self.head = GENESIS
        self.signed_to = 0
        self.trusted_to = 0
        self.removal = 0
        self.clock: tuple[str, int] = ("", 0)
        self._keep_root()

    def take(self, line: bytes) -> None:
        record = parse(line)
        if self.seq == 0 and record["seq"] > 1 and record["event"] == "checkpoint":
            self._begin_at(record)
        if record["seq"] != self.seq + 1:
            raise Bad(f"record {record['seq']} stands in its place")
        if record["prev"] != self.head:
            raise Bad("it does not continue the record before it")
        boot, mono = self.clock
        if boot == record["boot_id"] and record["mono_ns"] < mono:
            raise Bad("its clock ran backwards")
        self._check_seal(record)
        self.clock = (record["boot_id"], record["mono_ns"])
        self.seq, self.head = record["seq"], sha(line).hex()
        add_leaf(self.subtrees, line)
        self._keep_root()

    def _begin_at(self, record: dict[str, Any]) -> None:
        """Earlier segments were removed: this record holds the tree over them."""
        self.seq, self.head = record["seq"] - 1, record["prev"]
        self.first = record["seq"]
        self.subtrees = subtrees_from(self.seq, record["frontier"])
        self._keep_root()
        self.origin = read_checkpoint(record["note"])[0]
        handovers = record["handovers"]
        first = split_note(handovers[0])[0].splitlines()[2] if handovers else record["vkey"]
        self.keys = [read_key(first, self.origin)]
        for note in handovers:
            self._hand_over(note)

    def _check_seal(self, record: dict[str, Any]) -> None:
        event = record["event"]
        if event == "sealed":
            if self.keys:
                raise Bad("the log is sealed a second time")
            self.origin = record["origin"]
            self.keys = [read_key(record["vkey"], self.origin)]
        if self.keys and not re.fullmatch("[0-9a-f]{64}", record.get("mac", "")):
            raise Bad("it holds no MAC")
        if event == "checkpoint":
            self._check_checkpoint(record)
        elif event == "key_rotated":
            self._hand_over(record["note"])
        elif event == "segment_removed" and record["last_seq"] == self.first - 1:
            self.removal = record["seq"]

    def _check_checkpoint(self, record: dict[str, Any]) -> None:
        origin, size, root = read_checkpoint(record["note"])
        if not self.keys or origin != self.origin:
            raise Bad("its checkpoint is of another log")
        if (size, root) != (self.seq, root_of(self.subtrees)):
            raise Bad("its checkpoint is not one of the records before it")
        if read_key(record["vkey"], origin) != self.keys[-1]:
            raise Bad("it names a key that was never handed the log")
        if record["frontier"] != [each.hex() for _, each in self.subtrees]:
            raise Bad("its subtree hashes are not those of the records before it")
        if not is_signed(record["note"], origin, self.keys[-1]):
            raise Bad("its checkpoint is not signed by the log's key")
        self.signed_to = size
        if self.trusted_key in self.keys:
            self.trusted_to = size

    def _hand_over(self, note: str) -> None:
        headline, origin, old, new = split_note(note)[0].splitlines()
        if headline != HANDOVER or origin != self.origin or not self.keys:
            raise Bad("it hands over another log")
        if read_key(old, origin) != self.keys[-1] or not is_signed(note, origin, self.keys[-1]):
            raise Bad("its hand-over is not signed by the key that counted")
        self.keys.append(read_key(new, origin))

    def _keep_root(self) -> None:
        if any(size == self.size for _, _, size, _ in self.anchors):
            self.roots[self.size] = root_of(self.subtrees)

    @property
    def size(self) -> int:
        return sum(leaves for leaves, _ in self.subtrees)

    def complaints(self) -> Iterator[str]:
        """What is wrong with a log of which every record fits."""
        if self.first > 1 and not 0 < self.removal <= self.signed_to:
            yield "records are missing at the beginning, and no signed record says why"
        if self.trusted_key is not None and not self.trusted_to:
            yield "the given key did not sign this log"
        for note, origin, size, root in self.anchors:
            if size > self.size:
                yield f"the log was cut: an anchor knows {size} records"
            elif size not in self.roots:
                yield f"the anchor of {size} records is older than what is kept"
            elif self.roots[size] != root:
                yield f"the first {size} records are not those that were anchored"
            elif not any(is_signed(note, origin, key) for key in self.keys):
                yield f"the anchor of {size} records is not signed by a key of this log"


def parse(line: bytes) -> dict[str, Any]:
    """A record, in the one form that its bytes may have."""
    try:
        record = json.loads(line)
        again = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        fits = again.encode() == line and isinstance(record, dict)
    except (ValueError, RecursionError):
        fits = False
    if not fits:
        raise Bad("it is no record in canonical form")
    kinds = {"seq": int, "mono_ns": int, "prev": str, "ts": str, "boot_id": str, "event": str}
    if any(type(record.get(name)) is not kind for name, kind in kinds.items()):
        raise Bad("it lacks what every record has")
    return record  # type: ignore[no-any-return]


def lines_of(paths: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Whole lines. What stands after the last newline of all was never finished."""
    for path in paths:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE + 1):
                whole = line.endswith(b"\n")
                if not whole and len(line) <= MAX_LINE and path == paths[-1]:
                    return
                yield path.name, line[:-1] if whole else line


def verify(directory: Path, trusted_key: bytes | None, anchors: list[str]) -> tuple[Log, list[str]]:
    """Read everything; what was proven, and what is wrong."""
    paths = sorted(directory.glob("audit-" + "[0-9]" * 8 + ".jsonl"))
    if not paths:
        raise OSError("no audit log is here")
    log = Log(trusted_key, anchors)
    for name, line in lines_of(paths):
        try:
            log.take(line)
        except Bad as bad:
            return log, [f"record {log.seq + 1} in {name}: {bad}"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return log, [f"record {log.seq + 1} in {name}: what it says of the seal is unreadable"]
    return log, list(log.complaints())


def main() -> int:
    parser = argparse.ArgumentParser(description="Verify an audit log of the Conductor appliance.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--signed-by", type=Path, help="audit.pub, had from somewhere else")
    parser.add_argument("--anchor", type=Path, action="append", default=[], help="a checkpoint")
    given = parser.parse_args()
    try:
        key = load_key(given.signed_by) if given.signed_by else None
        anchors = [path.read_text(encoding="utf-8") for path in given.anchor]
        log, wrong = verify(given.directory, key, anchors)
    except (OSError, ValueError, Bad) as error:
        print(f"nothing was checked: {error}")
        return 2
    print(f"records   {log.first} to {log.seq}, signed up to {log.signed_to}")
    print(f"head      {log.head}")
    print(f"root      {root_of(log.subtrees).hex()}")
    for each in log.keys:
        print(f"key       {sha(each).hex()}")
    if given.signed_by is None:
        print("no key was given: anybody may have signed this")
    for complaint in wrong:
        print(f"WRONG     {complaint}")
    print("the log cannot be trusted" if wrong else "everything holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
