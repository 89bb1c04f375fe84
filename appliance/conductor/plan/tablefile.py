"""The automaton's tables as one file, so that a bundle carries them and nothing compiles twice.

A line of JSON (what the tables were made for, and each array's type and length), then the arrays in
that order, little-endian, without gaps. A reader of another language or a kernel needs no more.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from typing import Any

from conductor.errors import PlanError
from conductor.plan.byteshape import NEXT, PLACES
from conductor.plan.fixedtexts import FIXED, TREE
from conductor.plan.language import LANGUAGE_VERSION
from conductor.plan.tokentables import Tables

_FORMAT = "conductor-plan-tables-1"
_TYPES = {"class_of": "i", "next": "h", "length": "i", "fixed_start": "i", "fixed_token": "i",
          "fixed_next": "i", "walked": "i", "eos": "i"}  # fmt: skip
"""Arrays of int32 ("i") and int16 ("h"), in the file's order; `spelling` comes last."""
_AGAIN = "compile the tables again from the tokenizer"


def language_digest() -> str:
    """Names what the tables say of plans: the language, its shape and the fixed texts."""
    shape = json.dumps([LANGUAGE_VERSION, PLACES, [row.tolist() for row in NEXT], FIXED])
    return hashlib.sha256(shape.encode()).hexdigest()


def pack(tables: Tables) -> bytes:
    """The tables as a file's bytes."""
    parts = {name: _little(getattr(tables, name)) for name in _TYPES}
    head = {
        "format": _FORMAT,
        "language": language_digest(),
        "arrays": [[name, kind, len(getattr(tables, name))] for name, kind in _TYPES.items()],
        "spelling": len(tables.spelling),
    }
    line = json.dumps(head, separators=(",", ":")).encode()
    return b"\n".join([line, b"".join([*parts.values(), tables.spelling])])


def unpack(data: bytes) -> Tables:
    """The tables of a file's bytes. Raises `PlanError` when they are damaged, or of another plan
    language. That nobody tampered with them is the bundle's to say."""
    line, _, body = data.partition(b"\n")
    head = _head(line)
    if len(body) != head["spelling"] + sum(head[n] * array(t).itemsize for n, t in _TYPES.items()):
        raise PlanError(f"these automaton tables are cut: {_AGAIN}")
    arrays, at = {}, 0
    for name, kind in _TYPES.items():
        values = array(kind)
        size = head[name] * values.itemsize
        values.frombytes(body[at : at + size])
        if sys.byteorder == "big":
            values.byteswap()
        arrays[name], at = values, at + size
    tables = Tables(**arrays, spelling=body[at:])
    _check(tables)
    return tables


def _head(line: bytes) -> dict[str, int]:
    """The length of each array and of the spelling."""
    try:
        head: dict[str, Any] = json.loads(line)
        known = head["format"] == _FORMAT and [n for n, _, _ in head["arrays"]] == [*_TYPES]
        lengths = {name: int(length) for name, _, length in head["arrays"]}
        lengths["spelling"] = int(head["spelling"])
    except (ValueError, KeyError, TypeError):
        raise PlanError(f"these are no automaton tables: {_AGAIN}") from None
    if not known or any(length < 0 for length in lengths.values()):
        raise PlanError(f"these automaton tables are of another format: {_AGAIN}")
    if head["language"] != language_digest():
        raise PlanError(f"these automaton tables are of another plan language: {_AGAIN}")
    return lengths


def _check(tables: Tables) -> None:
    """That no index leads out of an array."""
    classes, count, nodes = tables.classes, tables.tokens, len(TREE)
    whole = (
        len(tables.next) == classes * len(PLACES)
        and len(tables.length) == count
        and sum(tables.length) == len(tables.spelling)
        and len(tables.fixed_start) == nodes + 1
        and len(tables.fixed_token) == len(tables.fixed_next) == tables.fixed_start[-1]
        and sorted(tables.fixed_start) == tables.fixed_start.tolist()
        and len(tables.eos) > 0
    )
    within = (
        _below(tables.class_of, classes)
        and _below(tables.fixed_token, count)
        and _below(tables.fixed_next, nodes)
        and _below(tables.walked, count)
        and _below(tables.eos, count)
        and _below(array("h", (place + 1 for place in tables.next)), len(PLACES) + 1)
    )
    if not whole or not within:
        raise PlanError(f"these automaton tables are damaged: {_AGAIN}")


def _below(values: array[int], bound: int) -> bool:
    return not values or (min(values) >= 0 and max(values) < bound)


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()
