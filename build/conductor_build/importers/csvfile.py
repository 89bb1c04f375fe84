"""One CSV file: a line for every answer, with prompt, model and score, and what else is known.

Answers may be whole replies: what one concludes with is found as the daemon finds it
(`forms.conclusion`). Costs are USD a call. The layout knows prices, not costs: a model's price is
what its costs come to by the token, so its calls cost together what the file says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from conductor_build.importers import forms
from conductor_build.importers.rows import Faults, Row, prompt_of
from conductor_build.outcome_files import CsvRows, OutcomesError, number, text_lines


@dataclass(frozen=True)
class Columns:
    """What the columns are called. The first three must be there; the others may be missing."""

    prompt: str = "prompt"
    model: str = "model"
    score: str = "score"
    answer: str = "answer"
    tokens: str = "tokens"
    cost: str = "cost"
    task: str = "task"


def read(path: Path, faults: Faults, columns: Columns, task: str) -> Iterator[Row]:
    """Rows of `path`; `task` is the task of a row that names none.

    Raises `OutcomesError` when a column is missing that must be there, or was renamed.
    """
    rows = CsvRows(path.name, text_lines(path, zipped=path.suffix == ".gz"))
    for column in fields(Columns):
        name = getattr(columns, column.name)
        must = column.name in ("prompt", "model", "score") or name != column.default
        if must and name not in rows.columns:
            raise OutcomesError(f"{path.name}:1: there is no column {name!r}")
    for where, record in rows:
        try:
            row = _row(where, record, columns, task)
        except OutcomesError as fault:
            faults.add(fault)
        else:
            yield row


def _row(where: str, record: dict[str, str], columns: Columns, task: str) -> Row:
    tokens, cost = record.get(columns.tokens), record.get(columns.cost)
    if cost and not tokens:
        raise OutcomesError(f"{where}: a cost needs its tokens: a price is by the token")
    return Row(
        where=where,
        prompt=prompt_of(record.get(columns.task) or task, record[columns.prompt], where),
        model=record[columns.model],
        answer=forms.conclusion(record.get(columns.answer, "")),
        score=number(record[columns.score], where, columns.score, most=1.0),
        output_tokens=number(tokens, where, columns.tokens) if tokens else None,
        cost_usd=number(cost, where, columns.cost) if cost else None,
    )
