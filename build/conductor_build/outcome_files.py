"""The files of a folder of outcomes, read strictly: every fault is an error with file and line.

    prompts.jsonl.gz   {"id", "task", "question"} and, optionally, the gold "answer"
    outcomes.csv.gz    prompt_id, model, and correct (0 or 1) or score (0 to 1);
                       answer and output_tokens where recorded
    workers.csv        in the folder or its parent: model, usd_out_per_mtok; kind (local, remote),
                       params_b and usd_in_per_mtok where known

docs/formats.md says what each field means. `importers/write.py` writes the same layout.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from conductor.errors import ConductorError

PROMPTS, OUTCOMES, WORKERS = "prompts.jsonl.gz", "outcomes.csv.gz", "workers.csv"

MAX_FIELD_CHARS = 1 << 20
"""Longest field of a CSV file: answers are short; a stray quote must not swallow the file."""

_SIZE_IN_NAME = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,2})?)b(?![a-z0-9])", re.IGNORECASE)


class OutcomesError(ConductorError):
    """A table of outcomes cannot be read or used; where a file is at fault, with file and line."""


@dataclass(frozen=True)
class Prompt:
    """One question, and the task it belongs to. `gold` is None where the folder has none."""

    id: str
    task: str
    question: str
    gold: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One model's answer to one prompt.

    `score` is 0 to 1. `answer` is in a normal form, two equal ones agree; empty: none could be
    extracted. `output_tokens` is None where not recorded.
    """

    prompt: str
    model: str
    answer: str
    score: float
    output_tokens: float | None


@dataclass(frozen=True)
class Worker:
    """Facts of one model. Prices in USD per million tokens; sizes in billions of parameters.

    NaN: not known. `local` is False unless it is known to run on the customer's premises.
    """

    name: str
    local: bool
    params_b: float
    usd_in_per_mtok: float
    usd_out_per_mtok: float

    @staticmethod
    def unlisted(name: str) -> Worker:
        """A model that workers.csv does not list: no price, and the size its name states, if any.

        `mistral-7b-instruct` states one; `Mixtral-8x7B` does not, for its parts share weights.
        """
        sizes = _SIZE_IN_NAME.findall(name)
        return Worker(
            name, False, float(sizes[0]) if len(sizes) == 1 else math.nan, *[math.nan] * 2
        )


def read_folder(folder: Path) -> tuple[list[Prompt], list[Outcome], dict[str, Worker]]:
    """Everything in `folder`. Raises `OutcomesError`."""
    prompts = list(read_prompts(folder / PROMPTS))
    outcomes = list(read_outcomes(folder / OUTCOMES, frozenset(prompt.id for prompt in prompts)))
    for rows, name in ((prompts, PROMPTS), (outcomes, OUTCOMES)):
        if not rows:
            raise OutcomesError(f"{folder / name}: the table is empty")
    lists = [path for path in (folder / WORKERS, folder.parent / WORKERS) if path.exists()]
    return prompts, outcomes, read_workers(lists[0]) if lists else {}


def read_prompts(path: Path) -> Iterator[Prompt]:
    """The prompts of a folder, ids all different."""
    seen: set[str] = set()
    for number, line in enumerate(byte_lines(path), 1):
        where = f"{path.name}:{number}"
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise OutcomesError(f"{where}: not JSON") from None
        prompt = _prompt(row, where)
        if prompt.id in seen:
            raise OutcomesError(f"{where}: this id was given before")
        seen.add(prompt.id)
        yield prompt


def _prompt(row: object, where: str) -> Prompt:
    if not isinstance(row, dict):
        raise OutcomesError(f"{where}: a prompt is an object")
    for name in ("id", "task", "question"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise OutcomesError(f"{where}: a prompt needs {name!r}, a text that is not empty")
    gold = row.get("answer")
    if gold is not None and not isinstance(gold, str):
        raise OutcomesError(f"{where}: the gold 'answer' is a text")
    return Prompt(row["id"], row["task"], row["question"], gold)


def read_outcomes(path: Path, prompts: frozenset[str]) -> Iterator[Outcome]:
    """The outcomes of a folder, at most one for a prompt and model."""
    rows = CsvRows(path.name, text_lines(path))
    value = next((name for name in ("score", "correct") if name in rows.columns), None)
    if value is None or not {"prompt_id", "model"} <= set(rows.columns):
        raise OutcomesError(f"{path.name}:1: needs prompt_id, model and one of score, correct")
    seen: set[tuple[str, str]] = set()
    for where, row in rows:
        prompt, model = row["prompt_id"], row["model"]
        if prompt not in prompts:
            raise OutcomesError(f"{where}: its prompt is not in {PROMPTS}")
        if not model:
            raise OutcomesError(f"{where}: names no model")
        if (prompt, model) in seen:
            raise OutcomesError(f"{where}: this model has answered this prompt before")
        seen.add((prompt, model))
        tokens = row.get("output_tokens")
        score = number(row[value], where, value, most=1.0)
        if value == "correct" and score not in (0.0, 1.0):
            raise OutcomesError(f"{where}: correct is 0 or 1")
        yield Outcome(
            prompt,
            model,
            row.get("answer", ""),
            score,
            number(tokens, where, "output_tokens") if tokens else None,
        )


def read_workers(path: Path) -> dict[str, Worker]:
    """The facts of workers.csv by name. Raises `OutcomesError`."""
    rows = CsvRows(path.name, text_lines(path, zipped=False))
    if not {"model", "usd_out_per_mtok"} <= set(rows.columns):
        raise OutcomesError(f"{path.name}:1: needs the columns model and usd_out_per_mtok")
    workers: dict[str, Worker] = {}
    for where, row in rows:
        name, kind = row["model"], row.get("kind", "")
        if not name or name in workers:
            raise OutcomesError(f"{where}: {'was listed before' if name else 'names no model'}")
        if kind not in ("local", "remote", ""):
            raise OutcomesError(f"{where}: kind is local or remote")
        facts = [
            number(row[column], where, column) if row.get(column) else math.nan
            for column in ("params_b", "usd_in_per_mtok", "usd_out_per_mtok")
        ]
        workers[name] = Worker(name, kind == "local", *facts)
    return workers


class CsvRows:
    """A CSV file with a header: iterates (file:line, row), with exactly the header's columns."""

    def __init__(self, name: str, lines: Iterable[str]) -> None:
        self._name = name
        self._reader = csv.reader(lines, strict=True)
        self.columns: Sequence[str] = next(self._records(), (0, []))[1]
        if len(set(self.columns)) != len(self.columns):
            raise OutcomesError(f"{name}:1: two columns have the same name")

    def __iter__(self) -> Iterator[tuple[str, dict[str, str]]]:
        for line, record in self._records():
            where = f"{self._name}:{line}"
            if len(record) != len(self.columns):
                raise OutcomesError(
                    f"{where}: {len(record)} fields under {len(self.columns)} columns"
                )
            yield where, dict(zip(self.columns, record, strict=True))

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        before = csv.field_size_limit(MAX_FIELD_CHARS)
        try:
            for record in self._reader:
                yield self._reader.line_num, record
        except csv.Error:
            raise OutcomesError(
                f"{self._name}:{self._reader.line_num}: not CSV (an open quote?)"
            ) from None
        finally:
            csv.field_size_limit(before)


def number(text: str, where: str, name: str, most: float = 1e12) -> float:
    """A finite number from 0 to `most`. Raises `OutcomesError` with `where`."""
    try:
        value = float("no" if "_" in text or not text.isascii() else text)
    except ValueError:
        raise OutcomesError(f"{where}: {name} is no number") from None
    if not 0 <= value <= most:  # NaN compares false
        raise OutcomesError(f"{where}: {name} is out of range (0 to {most:g})")
    return value


def byte_lines(path: Path, *, zipped: bool = True) -> Iterator[bytes]:
    """Lines ended by a line feed and nothing else: JSON may hold other line separators."""
    try:
        with gzip.open(path, "rb") if zipped else path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        raise OutcomesError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error):
        raise OutcomesError(f"{path.name}: {_unreadable(zipped)}") from None


def text_lines(path: Path, *, zipped: bool = True) -> Iterator[str]:
    """Lines of UTF-8, ends kept, for the csv module."""
    for line, data in enumerate(byte_lines(path, zipped=zipped), 1):
        try:
            yield data.decode("utf-8-sig" if line == 1 else "utf-8")
        except UnicodeDecodeError:
            raise OutcomesError(f"{path.name}:{line}: {_unreadable(zipped)}") from None


def _unreadable(zipped: bool) -> str:
    return "not a whole gzip file of UTF-8 text" if zipped else "not readable as UTF-8 text"
