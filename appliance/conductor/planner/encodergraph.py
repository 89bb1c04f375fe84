"""The encoder's graph, put in another order before it is loaded: its tables stay in 8 bits.

The published file holds whole numbers and, apart, a scale for each row; Cast and Mul make floats
of them. ONNX Runtime folds what hangs on constants alone while it loads, and so unfolds all 30,522
rows of the table of words, 45 MiB of floats and as much again on the way, of which a text uses at
most 192. Here the rows are taken first and unfolded then: the same numbers are multiplied, so the
same bits come out (docs/log.md has what that saves, and what else was tried).

    before  Gather(Mul(Cast(table), scales), rows)
    after   Mul(Cast(Gather(table, rows)), Gather(scales, rows))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conductor.detect.namesproto import fields, head, integer, sized, text, varints

_GRAPH = 7
"""Of a model; of a graph: 1 its nodes, 5 its initialisers (onnx.proto3)."""

Bytes = bytes | memoryview


@dataclass(frozen=True)
class _Node:
    """An operator, read; `attributes` as they are."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[Bytes, ...]
    raw: Bytes

    @classmethod
    def of(cls, raw: Bytes) -> _Node:
        parts = list(fields(raw))
        names: dict[int, list[str]] = {1: [], 2: [], 4: []}
        for number, value in parts:
            if number in names:
                names[number].append(str(value, "utf-8"))
        attributes = tuple(value for number, value in parts if number == 5)
        return cls("".join(names[4]), tuple(names[1]), tuple(names[2]), attributes, raw)


@dataclass(frozen=True)
class _Lookup:
    """Rows taken out of a table that is unfolded before: three nodes."""

    cast: _Node
    times: _Node
    gather: _Node

    def rows_first(self) -> Iterator[bytes]:
        (table, scales), rows = (self.cast.inputs[0], self.times.inputs[1]), self.gather.inputs[1]
        few, theirs, floats = (f"{self.times.outputs[0]}.{end}" for end in ("few", "by", "floats"))
        yield _written("Gather", (table, rows), few, self.gather.attributes)
        yield _written("Gather", (scales, rows), theirs, self.gather.attributes)
        yield _written("Cast", (few,), floats, self.cast.attributes)
        yield _written("Mul", (floats, theirs), self.gather.outputs[0])


def rows_first(model: bytes) -> bytes:
    """The same network, which takes rows before it unfolds them, wherever it takes rows of such a
    table and does nothing else with it; everything else is left as it is.

    Raises `ValueError` if these bytes are no ONNX model.
    """
    try:
        return b"".join(_pieces(model))
    except (TypeError, OverflowError):  # a number in the place of a message, or a vast one
        raise ValueError("not an ONNX file") from None


def _pieces(model: bytes) -> Iterator[Bytes]:
    for number, value in fields(model):
        if isinstance(value, int):
            yield integer(number, value)
            continue
        inside = list(_graph(value)) if number == _GRAPH else [value]
        yield head(number, sum(map(len, inside)))
        yield from inside


def _graph(raw: memoryview) -> Iterator[Bytes]:
    """Pieces, so that the weights among them are copied once, when all is joined."""
    parts = list(fields(raw))
    nodes = [_Node.of(value) for number, value in parts if number == 1]
    shapes = dict(_shape(value) for number, value in parts if number == 5)
    lookups = list(_lookups(nodes, shapes))
    instead = {id(one.gather): one for one in lookups}
    gone = {id(node) for one in lookups for node in (one.cast, one.times)}
    for node in nodes:
        if id(node) in instead:
            yield from (sized(1, one) for one in instead[id(node)].rows_first())
        elif id(node) not in gone:
            yield from (head(1, len(node.raw)), node.raw)
    for number, value in parts:
        if number != 1:
            yield from (head(number, len(value)), value)


def _lookups(nodes: Sequence[_Node], shapes: dict[str, list[int]]) -> Iterator[_Lookup]:
    made = {output: node for node in nodes for output in node.outputs}
    used = Counter(name for node in nodes for name in node.inputs)
    for gather in nodes:
        times = made.get(gather.inputs[0]) if gather.kind == "Gather" else None
        cast = made.get(times.inputs[0]) if times is not None and times.kind == "Mul" else None
        if times is None or cast is None or cast.kind != "Cast" or not _by_rows(gather):
            continue
        table, scales = shapes.get(cast.inputs[0]), shapes.get(times.inputs[1])
        alone = all(used[node.outputs[0]] == 1 for node in (cast, times))
        if alone and table and len(table) == 2 and scales == [table[0], 1]:
            yield _Lookup(cast, times, gather)


def _by_rows(gather: _Node) -> bool:
    """Whether its one attribute, the axis, is 0: as such, or because there is none."""
    numbers = [value for raw in gather.attributes for number, value in fields(raw) if number == 3]
    return not any(numbers)


def _shape(tensor: memoryview) -> tuple[str, list[int]]:
    """Name and dimensions of an initialiser."""
    name = ""
    dims: list[int] = []
    for number, value in fields(tensor):
        if number == 8:
            name = str(value, "utf-8")
        elif number == 1:
            dims += [value] if isinstance(value, int) else varints(value)
    return name, dims


def _written(
    kind: str, inputs: Sequence[str], output: str, attributes: Sequence[Bytes] = ()
) -> bytes:
    parts = [*(text(1, name) for name in inputs), text(2, output), text(4, kind)]
    return b"".join([*parts, *(sized(5, bytes(one)) for one in attributes)])
