"""Recorded outcomes: what real models answered to real prompts, and what it cost.

A folder holds `prompts.jsonl.gz` (`id`, `task`, `question`) and `outcomes.csv.gz` with the columns
`prompt_id`, `model` and either `correct` (0 or 1) or `score` (0 to 1); `answer` and
`output_tokens` are optional. `workers.csv`, in the folder or its parent, gives prices in USD per
million tokens.

Left out so far: sampling pools and playing plans against the records.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from conductor.errors import ConductorError


class OutcomesError(ConductorError):
    """A folder of outcomes cannot be read; the message names file and line."""


@dataclass(frozen=True)
class Outcome:
    """One model's answer to one prompt. `score` is 0 to 1; tokens None where not recorded."""

    prompt: str
    model: str
    score: float
    output_tokens: int | None


@dataclass(frozen=True)
class Outcomes:
    """A folder, loaded. `tasks` maps prompt to task; prices in USD per million output tokens."""

    tasks: Mapping[str, str]
    outcomes: tuple[Outcome, ...]
    output_price: Mapping[str, float]


@dataclass(frozen=True)
class Summary:
    """One model over all prompts it answered. Cost in USD per 1,000 prompts, output tokens only."""

    model: str
    prompts: int
    score: float
    score_by_task: Mapping[str, float]
    cost_usd_per_1k: float | None


def load(folder: Path) -> Outcomes:
    """Read a folder. Raises `OutcomesError`."""
    tasks = {str(row["id"]): str(row["task"]) for row in _prompts(folder / "prompts.jsonl.gz")}
    outcomes = tuple(_outcomes(folder / "outcomes.csv.gz", tasks))
    prices = next((p for p in (folder / "workers.csv", folder.parent / "workers.csv")
                   if p.exists()), None)  # fmt: skip
    return Outcomes(tasks, outcomes, {} if prices is None else dict(_prices(prices)))


def summarise(data: Outcomes) -> list[Summary]:
    """One summary a model, the best first."""
    by_model: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in data.outcomes:
        by_model[outcome.model].append(outcome)
    rows = [_summary(data, model, rows) for model, rows in by_model.items()]
    return sorted(rows, key=lambda row: (-row.score, row.model))


def _summary(data: Outcomes, model: str, rows: list[Outcome]) -> Summary:
    by_task: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_task[data.tasks[row.prompt]].append(row.score)
    tokens = [row.output_tokens for row in rows if row.output_tokens is not None]
    price = data.output_price.get(model)
    known = price is not None and len(tokens) == len(rows)
    return Summary(
        model=model,
        prompts=len(rows),
        score=_mean([row.score for row in rows]),
        score_by_task={task: _mean(scores) for task, scores in sorted(by_task.items())},
        cost_usd_per_1k=_mean(tokens) * price / 1e3 if known and price is not None else None,
    )


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values)


def _prompts(path: Path) -> Iterator[dict[str, object]]:
    for number, line in enumerate(_lines(path), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            raise OutcomesError(f"{path.name}:{number}: not JSON") from None
        if not isinstance(row, dict) or not {"id", "task"} <= row.keys():
            raise OutcomesError(f"{path.name}:{number}: a prompt needs 'id' and 'task'")
        yield row


def _outcomes(path: Path, tasks: Mapping[str, str]) -> Iterator[Outcome]:
    reader = csv.DictReader(_lines(path))
    columns = set(reader.fieldnames or ())
    value = next((name for name in ("score", "correct") if name in columns), None)
    if value is None or not {"prompt_id", "model"} <= columns:
        raise OutcomesError(f"{path.name}: needs prompt_id, model and one of score, correct")
    for row in reader:
        where = f"{path.name}:{reader.line_num}"
        if row["prompt_id"] not in tasks:
            raise OutcomesError(f"{where}: its prompt is not in prompts.jsonl.gz")
        tokens = row.get("output_tokens")
        yield Outcome(
            prompt=row["prompt_id"],
            model=row["model"],
            score=_number(row[value], where, most=1.0),
            output_tokens=int(_number(tokens, where)) if tokens else None,
        )


def _number(text: str | None, where: str, most: float = 1e12) -> float:
    try:
        number = float(text or "")
    except ValueError:
        raise OutcomesError(f"{where}: a number is missing") from None
    if not 0 <= number <= most:  # NaN compares false
        raise OutcomesError(f"{where}: a number is out of range (0 to {most:g})")
    return number


def _prices(path: Path) -> Iterator[tuple[str, float]]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield row["model"], _number(row.get("usd_out_per_mtok"), path.name)


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            yield from file
    except FileNotFoundError:
        raise OutcomesError(f"{path}: no such file") from None
    except (OSError, EOFError, UnicodeDecodeError):
        raise OutcomesError(f"{path.name}: not a whole gzip file of UTF-8 text") from None
