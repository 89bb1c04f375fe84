"""ZeroEval's result files: `result_dirs/<task>/<model>.json`, as its repository holds them.

Each file is a JSON array of records: `id`, `question` (`problem` in math-l5), the gold `answer`,
and `output`, a list whose first text is the model's reply. A task says how answers are read:

    math-l5   mathematics, equal normal forms are right
    gsm       a number
    crux      a Python literal

Tokens are UTF-8 bytes of the reply / 4, rounded: hidden reasoning is not in it, nor in the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conductor_build.importers import forms
from conductor_build.importers.replies import stated
from conductor_build.importers.rows import Faults, Row
from conductor_build.outcome_files import OutcomesError, Prompt

_TRAILING_DIGITS = re.compile(r"\d+\Z", re.ASCII)
_JSON = json.JSONDecoder()
_BETWEEN = re.compile(r"\s*([\[,\]])\s*")


@dataclass(frozen=True)
class Task:
    """How the answers of one task are read. `same(form, gold form)` says whether one is right."""

    form: Callable[[object], str]
    same: Callable[[str, str], bool]


def _equal(form: str, gold: str) -> bool:
    return bool(form) and form == gold


TASKS = {
    "math-l5": Task(forms.mathematics, _equal),
    "crux": Task(forms.literal, forms.same_literal),
    "gsm": Task(forms.number, _equal),
}


def read(checkout: Path, faults: Faults, tasks: Sequence[str] = tuple(TASKS)) -> Iterator[Row]:
    """Every record of `tasks` below `checkout`: the repository, or its `result_dirs`.

    Raises `OutcomesError` when a task has no result file, or a file is no JSON array.
    """
    root = checkout / "result_dirs" if (checkout / "result_dirs").is_dir() else checkout
    for task in tasks:
        files = sorted((root / task).glob("*.json"))
        if not files:
            raise OutcomesError(f"{root / task}: no result files of this task")
        for file in files:
            yield from _file(file, task, faults)


def _file(path: Path, task: str, faults: Faults) -> Iterator[Row]:
    for line, record in _records(path):
        try:
            row = _row(record, task, path.stem, f"{task}/{path.name}:{line}")
        except OutcomesError as fault:
            faults.add(fault)
        else:
            yield row


def _row(record: object, task: str, model: str, where: str) -> Row:
    if not isinstance(record, dict):
        raise OutcomesError(f"{where}: a record is an object")
    output = record.get("output")
    reply = _text(output[0] if isinstance(output, list) and output else output, "output", where)
    question = _text(record.get("question", record.get("problem")), "question", where)
    gold = _text(record.get("answer"), "answer", where)
    gold = gold.replace("#", "").strip() if task == "gsm" else gold
    how, value = TASKS[task], stated(reply)
    form = "" if value is None else how.form(value)
    return Row(
        where=where,
        prompt=Prompt(_id(record.get("id"), task, where), task, question, gold),
        model=model,
        answer=form,
        score=float(how.same(form, how.form(gold))),
        output_tokens=round(len(reply.encode(errors="surrogatepass")) / 4),
    )


def _text(value: object, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise OutcomesError(f"{where}: a record needs a text in {name!r}")
    return value


def _id(given: object, task: str, where: str) -> str:
    """`crux-test-#17` and the number 17 are both `crux:17`."""
    digits = _TRAILING_DIGITS.search(str(given)) if isinstance(given, (str, int)) else None
    if not digits:
        raise OutcomesError(f"{where}: a record needs an 'id' that ends in a number")
    return f"{task}:{digits[0]}"


def _records(path: Path) -> Iterator[tuple[int, object]]:
    """Elements of a JSON array, each with the line it begins on."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise OutcomesError(f"{path.name}: not readable as UTF-8 text") from None
    opened, line, counted = _BETWEEN.match(text), 1, 0
    at, more = (opened.end(), opened[1] == "[") if opened else (0, False)
    if more and text.startswith("]", at):
        return
    while more:
        line, counted = line + text.count("\n", counted, at), at
        try:
            record, end = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        yield line, record
        closed = _BETWEEN.match(text, end)
        if closed and closed[1] == "]" and closed.end() == len(text):
            return
        at, more = (closed.end(), closed[1] == ",") if closed else (end, False)
    raise OutcomesError(f"{path.name}:{line}: not an array of JSON records, or it is cut off here")
