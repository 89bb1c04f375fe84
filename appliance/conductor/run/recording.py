"""Putting on record what may be longer than one record can be.

A record of the audit log is short by design (`audit/record.py`). What grows with the pool, with the
policy or with what a client sends is dealt out: what has no room goes ahead in records of its own,
the event `more`, under the same ids, and the record itself says in `more` how many there are. They
are on disk before it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from conductor.audit.log import AuditLog
from conductor.core import Verdict

ROOM = 4096
"""Bytes of one field in one record. Two such fields, the names of a plan and three labels fit."""

MOST_SHADOWS = 16
"""Of one verdict: a policy may have hundreds in trial."""

T = TypeVar("T")


def post(
    audit: AuditLog, event: str, long: Mapping[str, Any], **fields: Any
) -> asyncio.Future[None]:
    """Post a record; the future resolves when it, and what went ahead of it, is on disk. The fields
    in `long` are lists, or mappings with short entries. Raises `AuditError`."""
    parts = {name: list(_dealt(value)) or [value] for name, value in long.items()}
    ids = {name: fields[name] for name in ("request_id", "decision_id")}
    more = 0
    for name, dealt in parts.items():
        for part in dealt[1:]:
            audit.post("more", **ids, of=event, **{name: part}).add_done_callback(_seen)
            more += 1
    firsts = {name: dealt[0] for name, dealt in parts.items()}
    return audit.post(event, **fields, **firsts, **({"more": more} if more else {}))


def shadow_facts(verdict: Verdict) -> list[dict[str, str]]:
    """The first shadow rules that would have applied, by name: the policy says where they stand."""
    return [{"effect": one.effect, "rule": one.rule} for one in verdict.shadow[:MOST_SHADOWS]]


def _dealt(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for part in pieces([*value.items()]):
            yield dict(part)
    else:
        yield from pieces(value)


def pieces(items: Sequence[T], room: int = ROOM) -> Iterator[list[T]]:
    """The items in their order, dealt out so that no part is longer than `room` bytes of JSON,
    unless a single item is."""
    part: list[T] = []
    size = 0
    for item in items:
        length = len(orjson.dumps(item))
        if part and size + length > room:
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part


def _seen(posted: asyncio.Future[None]) -> None:
    """Whether it could be written is told by the record that follows it."""
    if not posted.cancelled():
        posted.exception()
