"""Whatever is written into a seal: both verifiers give a verdict, and the writer does not start."""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.audit import standalone
from conductor.audit.keys import AuditKey
from conductor.audit.log import AuditLog
from conductor.audit.verify import verify
from conductor.errors import AuditError
from support.sealedlog import Lines, lines, new_key, rechained, rewritten, write

KEY = new_key()
FIELDS = ("note", "frontier", "vkey", "handovers", "origin", "mac", "last_seq")
EVENTS = ("sealed", "checkpoint", "key_rotated", "segment_removed", "decision")

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@cache
def genuine() -> tuple[AuditKey, tuple[bytes, ...]]:
    """The lines of a sealed log, written once."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(Path(folder), KEY))
        return KEY, tuple(lines(Path(folder)))


def verdicts(some: Lines, key: AuditKey) -> tuple[bool, bool]:
    """Of both verifiers."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "audit-00000001.jsonl").write_bytes(b"".join(line + b"\n" for line in some))
        ours = verify(directory, trust=key.public).ok
        theirs = not standalone.verify(directory, key.public.public_bytes_raw(), [])[1]
        return ours, theirs


def refused(some: Lines, key: AuditKey) -> bool:
    """Whether the writer will not go on from there: it reads from the last checkpoint on."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "audit-00000001.jsonl").write_bytes(b"".join(line + b"\n" for line in some))
        try:
            AuditLog.open(Path(folder), key=key)
        except AuditError:
            return True
        return False


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(range(7)),
    st.sampled_from(EVENTS),
    st.dictionaries(st.sampled_from(FIELDS), values),
)
def test_any_changed_record_is_found_by_both_verifiers_and_by_the_writer(
    index: int, event: str, fields: dict[str, Any]
) -> None:
    key, some = genuine()
    changed = rewritten(some[index], event=event, **fields)
    if changed == some[index]:
        return
    forged = rechained([*some[:index], changed, *some[index + 1 :]])
    assert verdicts(forged, key) == (False, False)
    assert refused(forged, key)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), values, min_size=1))
def test_a_log_that_begins_with_a_strange_checkpoint_is_refused_by_both(
    fields: dict[str, Any],
) -> None:
    key, some = genuine()
    start = next(n for n, line in enumerate(some) if json.loads(line)["event"] == "checkpoint")
    beginning = rewritten(some[start], **fields)
    assert verdicts([beginning, *some[start + 1 :]], key) == (False, False)
