"""Collecting what is wrong in configuration files, so that all of it is reported at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from conductor.errors import ConfigError, Fault


@dataclass(frozen=True, order=True)
class Position:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    @classmethod
    def of(cls, file: str, mark: Any) -> Position:
        """From a PyYAML mark, which counts from 0."""
        return cls(file, mark.line + 1, mark.column + 1)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Faults:
    """Everything wrong so far, in however many files."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, position: Position, code: str, message: str) -> None:
        """Note one fault. `message` must not repeat a value: it may be a secret."""
        self._faults.append(Fault(position.file, position.line, position.column, code, message))

    def raise_any(self) -> None:
        """Raises `ConfigError` with every fault, if there is one."""
        if self._faults:
            raise ConfigError(self._faults)


def hint(name: str, known: Iterable[str]) -> str:
    """The end of an "unknown" message: the nearest known name, or the first few of them all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = ", ..." if len(names) > 16 else ""
    return f"known: {', '.join(names[:16]) or 'none'}{more}"
