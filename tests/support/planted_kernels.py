"""Copies of the ops' files with a bug planted in one, to see that a check would find it."""

from __future__ import annotations

import sys
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import pytest

OPS = Path(__file__).parents[2] / "kernels" / "conductor_kernels" / "ops"


def planted(monkeypatch: pytest.MonkeyPatch, folder: Path, op: str, changes: dict[str, str]) -> Any:
    """The module `op` of a copy in which each text is replaced by another; each must be there."""
    package = folder / "planted_ops"
    package.mkdir()
    left = dict(changes)
    for path in OPS.glob("*.py"):
        text = path.read_text().replace("conductor_kernels.ops", "planted_ops")
        text = text.replace('"conductor::', '"planted::')
        for old in [old for old in left if old in text]:
            text = text.replace(old, left.pop(old))
        (package / path.name).write_text(text)
    assert not left, f"no such line any more: {left}"
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "planted_ops"]:
        del sys.modules[name]
    invalidate_caches()
    return import_module(f"planted_ops.{op}")
