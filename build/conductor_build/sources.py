"""What a recipe's tables are on disk, and all of them as one table to learn from.

`--data DIR` is a folder that holds those the recipe names, or one of them itself. Left out: what a
folder looks like (`outcome_files.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from conductor_build.outcome_files import OUTCOMES, PROMPTS, WORKERS
from conductor_build.outcomes import OutcomesError, Table, load, merge
from conductor_build.recipe import Recipe, TableUse


@dataclass(frozen=True, eq=False)
class Source:
    """One table, and how the recipe draws from it."""

    use: TableUse
    table: Table


@dataclass(frozen=True, eq=False)
class Sources:
    """All tables of a training. `data` has the sha256 of every file they were read from, by name;
    a caller that made its tables itself gives what tells them apart."""

    parts: tuple[Source, ...]
    data: dict[str, str]

    @property
    def questions(self) -> tuple[str, ...]:
        """Of all prompts, in the order of the joined table's rows."""
        return tuple(question for part in self.parts for question in part.table.questions)


def read_sources(recipe: Recipe, data: Path) -> Sources:
    """Read the recipe's tables below `data`.

    Raises `OutcomesError`: a folder or a worker that the recipe names is missing, a table is wrong.
    """
    parts, hashes = [], {}
    for use, folder in _folders(recipe, data):
        table = _kept(load(folder), use)
        parts.append(Source(use, table))
        hashes.update(_hashes(use, folder))
    return Sources(tuple(parts), hashes)


def _folders(recipe: Recipe, data: Path) -> list[tuple[TableUse, Path]]:
    if not (data / PROMPTS).exists():
        missing = [use.folder for use in recipe.tables if not (data / use.folder).is_dir()]
        if missing:
            raise OutcomesError(
                f"{data} has no folder {missing[0]!r}, which the recipe trains on, nor is it a "
                "folder of outcomes itself (docs/formats.md)"
            )
        return [(use, data / use.folder) for use in recipe.tables]
    named = [use for use in recipe.tables if use.folder == data.resolve().name]
    if named or len(recipe.tables) == 1:
        return [((named or list(recipe.tables))[0], data)]
    # A folder of somebody else's: the recipe's pools are about other tables.
    return [(TableUse(data.resolve().name, "data", exclude=_excluded(recipe)), data)]


def _excluded(recipe: Recipe) -> tuple[str, ...]:
    return tuple(sorted({pattern for use in recipe.tables for pattern in use.exclude}))


def _kept(table: Table, use: TableUse) -> Table:
    """The table without the workers that are to be left out."""
    out = {name for name in table.names if any(fnmatchcase(name, one) for one in use.exclude)}
    unknown = [name for name in use.pool if name not in table.names or name in out]
    if unknown:
        raise OutcomesError(
            f"the recipe's pool for {use.name!r} has {unknown[0]!r}, which that table does not "
            "have, or which `exclude` leaves out"
        )
    return table.columns([n for n in table.names if n not in out]) if out else table


def _hashes(use: TableUse, folder: Path) -> dict[str, str]:
    own = folder / WORKERS
    files = [folder / PROMPTS, folder / OUTCOMES, own if own.exists() else folder.parent / WORKERS]
    found = {}
    for path in filter(Path.exists, files):
        with path.open("rb") as file:
            found[f"{use.name}/{path.name}"] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def joined(parts: Sequence[Source]) -> Table:
    """All tables as one, prompts in order."""
    tables = [part.table for part in parts]
    counted = {
        name
        for table in tables
        for name, there in zip(table.names, _counted(table), strict=True)
        if there
    }
    return merge([_charged(table, counted) for table in tables])


def _counted(table: Table) -> list[bool]:
    """Of each worker whether any answer has a token count."""
    return [bool(np.isfinite(table.tokens[:, place]).any()) for place in range(len(table.names))]


def _charged(table: Table, counted: set[str]) -> Table:
    """A worker charged by its size here, and by tokens in another table, would cost nothing here
    once the two are one: it gets the token count at which its price comes to the same."""
    tokens = table.tokens.copy()
    for place, worker in enumerate(table.workers):
        same = worker.params_b / worker.usd_out_per_mtok if worker.usd_out_per_mtok else np.nan
        if worker.name in counted and np.isfinite(same):
            silent = np.isfinite(table.score[:, place]) & ~np.isfinite(tokens[:, place])
            tokens[silent, place] = same
    return replace(table, tokens=tokens)
