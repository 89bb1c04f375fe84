"""Sealed audit logs for tests: a key, logs written with it, and what an attacker does to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.audit.keys import AuditKey
from conductor.audit.log import AuditLog
from conductor.audit.record import GENESIS, canonical, hash_line
from conductor.audit.segments import segments

Lines = list[bytes]


def new_key() -> AuditKey:
    return AuditKey(Ed25519PrivateKey.generate())


async def write(directory: Path, key: AuditKey | None, count: int = 3, **options: Any) -> None:
    """One run of an appliance that decides `count` times."""
    log = AuditLog.open(directory, key=key, **options)
    await asyncio.gather(*(log.post("decision", n=n, rule="r1") for n in range(count)))
    await log.close()


def lines(directory: Path) -> Lines:
    return [line for path in segments(directory) for line in path.read_bytes().splitlines()]


def records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(directory)]


def events(directory: Path) -> list[str]:
    return [record["event"] for record in records(directory)]


def change(directory: Path, edit: Callable[[Lines], Lines], segment: int = -1) -> None:
    """Edit the lines of one segment where they lie."""
    path = segments(directory)[segment]
    path.write_bytes(b"".join(line + b"\n" for line in edit(path.read_bytes().splitlines())))


def rewritten(line: bytes, **changes: Any) -> bytes:
    return canonical({**json.loads(line), **changes})


def rechained(some: Lines) -> Lines:
    """Numbers and hashes made to fit again, which needs no key."""
    out: Lines = []
    for number, line in enumerate(some, 1):
        out.append(rewritten(line, prev=hash_line(out[-1]) if out else GENESIS, seq=number))
    return out
