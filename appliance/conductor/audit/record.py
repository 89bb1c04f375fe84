"""One audit record: what may stand in it, its canonical line, and the hash that chains it.

A line is canonical JSON: sorted keys, UTF-8, no floats, no line break. Its hash is the SHA-256 of
exactly those bytes, without the newline; the next record repeats it as `prev`.

In a sealed log each record also holds `mac`: HMAC-SHA256, under the key of the chain, of its line
as it would be without it. Anybody can compute the hashes of a chain; without the key nobody can
write a record that the appliance, or whoever has the key, takes for its own. It covers what was
written since the last signed checkpoint; to those who hold only the public key it proves nothing.

Left out: files (`segments.py`), threads (`log.py`), checking a whole log (`verify.py`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from conductor.errors import AuditError

Fields = dict[str, Any]

GENESIS = "0" * 64
"""`prev` of the very first record."""

MAX_STRING_BYTES = 4096
"""Longer than any id, rule or hash, shorter than a prompt worth keeping out."""

MAX_RECORD_BYTES = 16384
_MAX_DEPTH = 6
_INT64 = 1 << 63
_OWN_KEYS = frozenset({"seq", "ts", "mono_ns", "boot_id", "prev", "event", "mac"})


@dataclass(frozen=True)
class ChainEnd:
    """Where a chain stands: the last record's number (from 1; 0 is an empty log) and hash."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True)
class Moment:
    """When a record was posted, by both clocks: one for people, one that nobody can set back."""

    wall_ns: int
    mono_ns: int

    @property
    def ts(self) -> str:
        """UTC, ISO 8601 with milliseconds: `2026-08-01T12:00:00.000Z`."""
        seconds, rest = divmod(self.wall_ns, 1_000_000_000)
        base = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{base}.{rest // 1_000_000:03d}Z"


def hash_line(line: bytes) -> str:
    """SHA-256, hex, of a line without its newline."""
    return hashlib.sha256(line).hexdigest()


def canonical(record: Mapping[str, Any]) -> bytes:
    """The one byte form of a record, without newline."""
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)


def seal(
    end: ChainEnd,
    event: str,
    fields: Fields,
    moment: Moment,
    boot_id: str,
    chain_key: bytes | None = None,
) -> bytes:
    """The canonical line of the record that follows `end`, with a `mac` where there is a
    `chain_key`. `fields` have been `checked`."""
    record = {
        **fields,
        "event": event,
        "seq": end.seq + 1,
        "prev": end.hash,
        "ts": moment.ts,
        "mono_ns": moment.mono_ns,
        "boot_id": boot_id,
    }
    line = canonical(record)
    if chain_key is None:
        return line
    record["mac"] = hmac.digest(chain_key, line, "sha256").hex()
    return canonical(record)


def mac_holds(record: Mapping[str, Any], chain_key: bytes) -> bool:
    """Whether whoever has `chain_key` wrote this record."""
    bare = {key: value for key, value in record.items() if key != "mac"}
    expected = hmac.digest(chain_key, canonical(bare), "sha256").hex()
    return hmac.compare_digest(expected.encode(), str(record.get("mac")).encode())


def parse(line: bytes) -> dict[str, Any] | None:
    """The record of a line without its newline; None when that is not exactly the canonical form
    of one."""
    try:
        record = orjson.loads(line)
        exact = canonical(record) == line
    except (orjson.JSONDecodeError, TypeError):
        return None
    if not exact or not isinstance(record, dict):
        return None
    text = all(isinstance(record.get(key), str) for key in ("prev", "ts", "boot_id", "event"))
    count = all(type(record.get(key)) is int for key in ("seq", "mono_ns"))
    return record if text and count else None


def checked(event: str, fields: Mapping[str, object]) -> Fields:
    """A private copy of `fields`, fit to be recorded.

    Raises:
        AuditError: a field of a wrong type or name, a string or a record that is too long: such
            a record might hold a body, and a record without it would be a false one.
    """
    if not _OWN_KEYS.isdisjoint(fields):
        raise AuditError(f"an audit record sets {', '.join(sorted(_OWN_KEYS))} by itself")
    copy: Fields = _checked(fields, 0)
    if len(canonical({**copy, "event": _checked(event, 0)})) > MAX_RECORD_BYTES - 512:
        raise AuditError(f"an audit record may hold {MAX_RECORD_BYTES} bytes: record less")
    return copy


def _checked(value: object, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _checked_text(value)
    if isinstance(value, int):
        return _checked_int(value)
    if depth >= _MAX_DEPTH:
        raise AuditError(f"an audit record may nest {_MAX_DEPTH} deep: flatten it")
    if isinstance(value, Mapping):
        return {_checked_key(key): _checked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_checked(item, depth + 1) for item in value]
    raise AuditError(
        f"an audit record holds strings, integers, booleans, null, lists and objects, no "
        f"{type(value).__name__}: money goes in as integer micro-USD, time as milliseconds"
    )


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise AuditError("keys of an audit record are strings")
    return _checked_text(key)


def _checked_text(value: str) -> str:
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise AuditError("a string of an audit record is not valid Unicode") from None
    if size > MAX_STRING_BYTES:
        raise AuditError(
            f"a string of an audit record may have {MAX_STRING_BYTES} bytes: record a hash"
        )
    return str(value)


def _checked_int(value: int) -> int:
    if not -_INT64 <= value < _INT64:
        raise AuditError("an integer of an audit record must fit 64 bits")
    return int(value)
