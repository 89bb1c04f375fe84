"""Fields of records read without trust: a record of an older or newer version lacks some, and that
is no damage."""

from __future__ import annotations

from typing import Any


def text(value: Any) -> str:
    """The text, or empty for anything else."""
    return value if isinstance(value, str) else ""


def number(value: Any) -> int | None:
    """The integer, or None for anything else."""
    return value if type(value) is int else None


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list; empty for anything else."""
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()
