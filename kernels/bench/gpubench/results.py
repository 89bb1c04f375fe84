"""What was measured, on disk after each part, so that a run that is cut off leaves what it has."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpubench.card import Facts
from gpubench.parts import Bench, Part, Row

SCHEMA = 1


@dataclass
class Table:
    """What came of a part."""

    name: str
    title: str
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    left_out: str = ""
    """Why there are not all rows; empty where there are."""

    def facts(self) -> dict[str, Any]:
        """For the file."""
        return {
            "title": self.title,
            "seconds": round(self.seconds, 1),
            "complete": not self.left_out,
            "left_out": self.left_out,
            "rows": self.rows,
        }


@dataclass
class Results:
    """A run so far."""

    measured: bool
    """False: a dry run, whose figures mean nothing."""
    machine: Facts
    tables: list[Table] = field(default_factory=list)

    def table(self, name: str) -> list[Row]:
        """Rows of a part; none where it did not run."""
        return [row for table in self.tables if table.name == name for row in table.rows]

    def complete(self, name: str) -> bool:
        """Whether a part ran to its end."""
        return any(table.name == name and not table.left_out for table in self.tables)

    def facts(self) -> dict[str, Any]:
        """For the file."""
        return {
            "schema": SCHEMA,
            "measured": self.measured,
            "machine": self.machine,
            "parts": {table.name: table.facts() for table in self.tables},
        }

    def write(self, path: Path) -> None:
        """As JSON; a reader never finds half of it."""
        beside = path.with_suffix(".partial")
        beside.write_text(json.dumps(self.facts(), indent=1) + "\n")
        beside.replace(path)


def run_all(
    bench: Bench,
    parts: Sequence[Part],
    results: Results,
    limit_s: float,
    after: Callable[[Table], None],
) -> None:
    """Each part within its own time and all within `limit_s`. One that breaks says so in its table
    and does not keep the next from running."""
    end = time.monotonic() + limit_s
    for part in parts:
        table = Table(part.name, part.title)
        results.tables.append(table)
        begun = time.monotonic()
        _fill(table, bench, part, min(end, begun + part.budget_s))
        table.seconds = time.monotonic() - begun
        after(table)


def _fill(table: Table, bench: Bench, part: Part, deadline: float) -> None:
    if time.monotonic() >= deadline:
        table.left_out = "no time was left"
        return
    try:
        for row in part.rows(bench):
            table.rows.append(row)
            if time.monotonic() >= deadline:
                table.left_out = "its time was over: what would have followed is missing"
                return
    except Exception as error:  # noqa: BLE001  what one part breaks on is no reason to lose the rest
        table.left_out = f"it broke: {type(error).__name__}: {_first_line(error)}"
        traceback.print_exc()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else ""
