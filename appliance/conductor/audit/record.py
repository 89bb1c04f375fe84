"""One audit record: what may stand in it, its canonical line, and the hash that chains it.

A line is canonical JSON: sorted keys, UTF-8, no floats, no line break. Its hash is the SHA-256 of
exactly those bytes, without the newline; the next record repeats it as `prev`.

Left out: files (`segments.py`), threads (`log.py`), checking a whole log (`verify.py`).
"""

from __future__ import annotations

import hashlib
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
_OWN_KEYS = frozenset({"seq", "ts", "mono_ns", "boot_id", "prev", "event"})


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


def seal(end: ChainEnd, event: str, fields: Fields, moment: Moment, boot_id: str) -> bytes:
    """The canonical line of the record that follows `end`. `fields` have been `checked`."""
    return canonical(
        {
            **fields,
            "event": event,
            "seq": end.seq + 1,
            "prev": end.hash,
            "ts": moment.ts,
            "mono_ns": moment.mono_ns,
            "boot_id": boot_id,
        }
    )


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
