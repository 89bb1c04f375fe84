"""What stands in PTX, the code that is assembled: whose memory each load reads, and how much of it.

A load's address is followed back, through all that its 64-bit registers were set from, to the
arguments of the kernel. So a load of weights is told from one of activations, whatever its width.
Numbers on the way that come from memory, such as places in a table, are not followed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

WIDE = 16
"""Bytes that a thread loads at most in one instruction, and should."""
_LINE = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s+([^;]+);", re.M)
_ARGUMENT = re.compile(r"_param_(\d+)\]")
_LONG = re.compile(r"%rd\d+")
_ANY = re.compile(r"%\w+")
_PLACE = re.compile(r"\[([^\]]*)\]")
_TYPE = re.compile(r"(?:\.v(\d))?\.[bfus](\d+)$")
_COPIED = re.compile(r",\s*(0x[0-9a-f]+|\d+)")
_FLUSHES = re.compile(r"(?:fma|mul|add|sub)\.(?:\w+\.)*ftz\b")
_MASKS = re.compile(r"(?:and|lop3)\.b32\b")


@dataclass(frozen=True)
class Load:
    """One instruction that reads the GPU's memory."""

    arguments: frozenset[int]
    """By their place in the kernel, those that its address was computed from."""
    size: int
    """Bytes of a thread."""


def loads_of(ptx: str) -> Iterator[Load]:
    """All loads from the GPU's memory, in order; copies to shared memory are such."""
    lines = _LINE.findall(ptx)
    sources = _sources(lines)
    for operation, operands in lines:
        places = _PLACE.findall(operands)
        if operation.startswith("ld.global"):
            count, bits = _TYPE.search(operation).groups()  # type: ignore[union-attr]
            yield Load(_arguments(places[0], sources), int(count or 1) * int(bits) // 8)
        elif operation.startswith("cp.async.c"):
            size = _COPIED.search(operands.rpartition("]")[2])
            yield Load(_arguments(places[1], sources), int(size[1], 0) if size else 0)


def flushed_fields(ptx: str) -> int:
    """Sums and products that take numbers below 2^-126 for zero, of what was just masked out of a
    word: packed weights are such numbers."""
    lines = _LINE.findall(ptx)
    masked = {_ANY.findall(operands)[0] for name, operands in lines if _MASKS.match(name)}
    return sum(
        1
        for name, operands in lines
        if _FLUSHES.match(name) and masked.intersection(_ANY.findall(operands)[1:])
    )


def _sources(lines: Collection[tuple[str, str]]) -> dict[str, set[str]]:
    """Register -> registers and arguments' places that it is set from, wherever it is set."""
    found: dict[str, set[str]] = defaultdict(set)
    for operation, operands in lines:
        registers = _LONG.findall(operands)
        if not registers or operation.startswith(("ld.global", "st.", "cp.")):
            continue
        found[registers[0]].update(registers[1:])
        if argument := _ARGUMENT.search(operands):
            found[registers[0]].add(argument[1])
    return found


def _arguments(place: str, sources: dict[str, set[str]]) -> frozenset[int]:
    seen: set[str] = set()
    waiting = set(_LONG.findall(place))
    while waiting:
        one = waiting.pop()
        seen.add(one)
        waiting |= sources.get(one, set()) - seen
    return frozenset(int(one) for one in seen if one.isdigit())
