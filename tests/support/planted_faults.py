"""A copy of an op's file with one fault in it, to see that its test finds the fault."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Plant:
    """Text of the file, and what takes its place everywhere."""

    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.right} -> {self.wrong}"


def planted(module: ModuleType, plant: Plant, folder: Path) -> Any:
    """The module with the fault. Its torch ops have a namespace of their own. Raises
    `AssertionError` where the file has no such text."""
    text = Path(str(module.__file__)).read_text()
    assert plant.right in text, f"{module.__name__} does not say {plant.right!r} any more"
    number = abs(hash((module.__name__, plant)))
    text = text.replace(plant.right, plant.wrong).replace('"conductor::', f'"planted_{number}::')
    path = folder / f"planted_{number}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy
