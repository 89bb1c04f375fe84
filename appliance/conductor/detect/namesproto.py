"""The few messages of an ONNX file that the names room reads and writes, as protobuf wire bytes.

The runtime has no `onnx` package, and needs none for this: field numbers are those of onnx.proto3
(https://github.com/onnx/onnx, ir_version 8), encoding is that of protobuf's documentation. Read:
initialisers, and which node uses which. Written: nodes, initialisers, inputs and outputs. The bare
fields serve `planner/encodergraph.py` too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64}
_NUMBERS = {np.dtype(kind): number for number, kind in _TYPES.items()}
_FLOAT, _INT, _INTS = 1, 2, 7
"""Kinds of attribute."""


@dataclass(frozen=True)
class Node:
    """One operator of a graph that was read: its name and the names of its inputs."""

    name: str
    kind: str
    inputs: tuple[str, ...]


def read_graph(data: bytes) -> tuple[list[Node], dict[str, Array]]:
    """Nodes in order, and initialisers by name. Raises `ValueError` on anything else."""
    try:
        return _read(next((value for number, value in fields(data) if number == 7), b""))
    except (TypeError, OverflowError):  # a number in the place of a message, or a vast one
        raise ValueError("not an ONNX file") from None


def _read(graph: bytes | memoryview) -> tuple[list[Node], dict[str, Array]]:
    nodes: list[Node] = []
    arrays: dict[str, Array] = {}
    for number, value in fields(graph):
        if number == 1:
            nodes.append(_node(value))
        elif number == 5:
            name, array = _tensor(value)
            arrays[name] = array
    return nodes, arrays


def _node(data: memoryview) -> Node:
    inputs: list[str] = []
    name = kind = ""
    for number, value in fields(data):
        if number == 1:
            inputs.append(str(value, "utf-8"))
        elif number == 3:
            name = str(value, "utf-8")
        elif number == 4:
            kind = str(value, "utf-8")
    return Node(name, kind, tuple(inputs))


def _tensor(data: memoryview) -> tuple[str, Array]:
    dims: list[int] = []
    number_of_type, name, raw = 0, "", None
    small: list[int] = []
    for number, value in fields(data):
        if number == 1:
            dims += [value] if isinstance(value, int) else varints(value)
        elif number == 2:
            number_of_type = value
        elif number == 5:
            small += [value] if isinstance(value, int) else varints(value)
        elif number == 8:
            name = str(value, "utf-8")
        elif number in (4, 9):  # packed floats have the bytes of raw ones
            raw = value
    kind = _TYPES.get(number_of_type)
    if kind is None:
        raise ValueError("an initialiser of an unknown type")
    values = np.array(small, kind) if raw is None else np.frombuffer(raw, kind)
    return name, values.reshape(dims)


def fields(data: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    """Field numbers and values: an int for a varint, a view for everything that has a length."""
    view, at = memoryview(data), 0
    while at < len(view):
        key, at = _varint(view, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(view, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(view, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("not a protobuf message")
        if at + size > len(view):
            raise ValueError("the file ends too early")
        yield key >> 3, view[at : at + size]
        at += size


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    while at < len(view) and shift < 64:
        byte = view[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
    raise ValueError("the file ends too early")


def varints(view: memoryview) -> list[int]:
    """Whole numbers that stand in one field together."""
    values, at = [], 0
    while at < len(view):
        value, at = _varint(view, at)
        values.append(value)
    return values


class Writer:
    """A graph being put together. Names of values are the caller's."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._arrays: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def constant(self, name: str, array: Array) -> str:
        """An initialiser; returns its name."""
        tensor = [integer(1, dim) for dim in array.shape]
        tensor += [integer(2, _NUMBERS[array.dtype]), text(8, name)]
        tensor.append(sized(9, np.ascontiguousarray(array).tobytes()))
        self._arrays.append(b"".join(tensor))
        return name

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        domain: str = "",
        **attributes: float | int | list[int],
    ) -> str:
        """An operator; returns the name of its first output."""
        parts = [text(1, name) for name in inputs] + [text(2, name) for name in outputs]
        parts += [text(4, kind), text(7, domain)]
        parts += [sized(5, _attribute(name, value)) for name, value in attributes.items()]
        self._nodes.append(b"".join(parts))
        return outputs[0]

    def input(self, name: str, shape: Sequence[str | int]) -> str:
        """A float32 input of the graph; a dimension that varies is given by a name."""
        self._inputs.append(_value(name, shape))
        return name

    def output(self, name: str, shape: Sequence[str | int]) -> None:
        """A float32 output of the graph."""
        self._outputs.append(_value(name, shape))

    def model(self) -> bytes:
        """The whole model: opset 17 and ONNX Runtime's own operators."""
        graph = [sized(1, node) for node in self._nodes]
        graph.append(text(2, "names"))
        for number, items in ((5, self._arrays), (11, self._inputs), (12, self._outputs)):
            graph += [sized(number, item) for item in items]
        opsets = [text(1, "") + integer(2, 17), text(1, "com.microsoft") + integer(2, 1)]
        head = [integer(1, 8), *(sized(8, opset) for opset in opsets)]
        return b"".join([*head, sized(7, b"".join(graph))])


def _attribute(name: str, value: float | int | list[int]) -> bytes:
    if isinstance(value, list):
        body = b"".join(integer(8, item) for item in value) + integer(20, _INTS)
    elif isinstance(value, int):
        body = integer(3, value) + integer(20, _INT)
    else:
        body = b"\x15" + np.float32(value).tobytes() + integer(20, _FLOAT)
    return text(1, name) + body


def _value(name: str, shape: Sequence[str | int]) -> bytes:
    dims = [text(2, dim) if isinstance(dim, str) else integer(1, dim) for dim in shape]
    tensor = integer(1, 1) + sized(2, b"".join(sized(1, dim) for dim in dims))
    return text(1, name) + sized(2, sized(1, tensor))


def integer(field: int, value: int) -> bytes:
    """A field that is a whole number."""
    return _bytes_of(field << 3) + _bytes_of(value & (1 << 64) - 1)


def text(field: int, value: str) -> bytes:
    """A field that is a text."""
    return sized(field, value.encode())


def sized(field: int, value: bytes) -> bytes:
    """A field that has a length."""
    return head(field, len(value)) + value


def head(field: int, size: int) -> bytes:
    """What stands before the `size` bytes of such a field: long ones need not be copied for it."""
    return _bytes_of(field << 3 | 2) + _bytes_of(size)


def _bytes_of(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
