"""The results for people, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpubench.goals import goals
from gpubench.parts import Cell
from gpubench.results import Results, Table

DRY = (
    "**A dry run on a CPU with tiny sizes: nothing here is a measurement, and nothing about speed "
    "follows from it.**"
)


def page(results: Results) -> str:
    """The whole report."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    machine = results.machine
    yield f"# {machine.get('card') or 'No card'}, {machine['when']}"
    yield ""
    if not results.measured:
        yield from (DRY, "")
    yield from _grid([{"": name, "of this run": value} for name, value in machine.items()])
    yield from ("", "## Goals", "")
    yield from _grid(
        [
            {"goal": one.text, "aim": one.aim, "found": one.found, "verdict": one.verdict}
            for one in goals(results)
        ]
    )
    for table in results.tables:
        yield from _section(table, results.measured)


def _section(table: Table, measured: bool) -> Iterator[str]:
    yield from ("", f"## {table.title}", "")
    if table.left_out:
        yield from (f"Not complete: {table.left_out}.", "")
    yield from _grid(_shown(table))
    if measured:
        yield from ("", f"Took {table.seconds:.0f} s.")


def _shown(table: Table) -> Sequence[Mapping[str, Cell]]:
    """Of the checks, one line an op and those that failed; of all else everything."""
    if table.name != "checks":
        return table.rows
    shown: list[Mapping[str, Cell]] = []
    for op in dict.fromkeys(row["op"] for row in table.rows):
        mine = [row for row in table.rows if row["op"] == op]
        passed = sum(bool(row["passed"]) for row in mine)
        shown.append({"op": op, "case": f"{len(mine)} cases", "passed": f"{passed} of {len(mine)}"})
        shown += [row for row in mine if not row["passed"]]
    return shown


def _grid(rows: Sequence[Mapping[str, Cell]]) -> Iterator[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        yield "Nothing."
        return
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_cell(row.get(name)) for name in columns)} |"


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "/")
