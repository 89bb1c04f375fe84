"""The tokenizer inside a GGUF file: its metadata alone, read without loading the tensors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from conductor.plan.tokens import byte_level, listed

_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
            11: "<q", 12: "<d"}  # fmt: skip
_STRING, _ARRAY = 8, 9
_NORMAL = 1
"""Type of a token that is text; the others are marks of some kind."""


@dataclass(frozen=True)
class GgufTokenizer:
    """A byte-level BPE vocabulary."""

    pieces: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    eos: int

    @property
    def bytes_per_id(self) -> tuple[bytes | None, ...]:
        """None for marks."""
        return listed({
            i: byte_level(piece) if kind == _NORMAL else None
            for i, (piece, kind) in enumerate(zip(self.pieces, self.types, strict=True))
        })  # fmt: skip


def read_tokenizer(path: Path) -> GgufTokenizer:
    """Raises `ValueError` for a file that is no GGUF with a byte-level vocabulary."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError("no GGUF file")
        _number(file, 4)
        _, pairs = _number(file, 10), _number(file, 10)
        found = dict(_pair(file) for _ in range(pairs))
    if found["tokenizer.ggml.model"] != "gpt2":
        raise ValueError("no byte-level vocabulary")
    return GgufTokenizer(
        tuple(found["tokenizer.ggml.tokens"]),
        tuple(found["tokenizer.ggml.token_type"]),
        tuple(found["tokenizer.ggml.merges"]),
        int(found["tokenizer.ggml.eos_token_id"]),
    )


def _number(file: BinaryIO, kind: int) -> Any:
    layout = _NUMBERS[kind]
    return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]


def _string(file: BinaryIO) -> str:
    return file.read(_number(file, 10)).decode()


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    return _array(file) if kind == _ARRAY else _number(file, kind)


def _array(file: BinaryIO) -> Sequence[Any]:
    kind, count = _number(file, 4), _number(file, 10)
    return [_value(file, kind) for _ in range(count)]


def _pair(file: BinaryIO) -> tuple[str, Any]:
    name = _string(file)
    return name, _value(file, _number(file, 4))
