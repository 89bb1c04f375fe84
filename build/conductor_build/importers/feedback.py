"""The appliance's own log of judged answers: JSON lines, one a judgement (docs/formats.md).

What a user thought of an answer becomes an outcome of the worker that gave it. A question may be
asked again: of two judgements of one worker on one question, the later one counts.

Left out: `plan` and `log_prob` are checked here and used by off-policy training, not by a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import orjson

from conductor_build.importers import forms
from conductor_build.importers.rows import Faults, Row, prompt_of
from conductor_build.outcome_files import OutcomesError, byte_lines

TASK = "feedback"
"""Task of a judgement that names none."""

_TEXTS = ("request_id", "time", "question", "worker", "plan")
_OPTIONAL = ("task", "answer", "log_prob")


def read(logs: Sequence[Path], faults: Faults) -> Iterator[Row]:
    """Rows of the logs (gzip where they end in .gz). Raises `OutcomesError`."""
    seen: set[tuple[str, str]] = set()
    for where, data in _lines(logs):
        try:
            record = _record(data, where)
            judged = (record["request_id"], record["worker"])
            if judged in seen:
                raise OutcomesError(f"{where}: this answer was judged before")
            row = _row(record, where)
        except OutcomesError as fault:
            faults.add(fault)
        else:
            seen.add(judged)
            yield row


def _lines(logs: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    for path in logs:
        for line, data in enumerate(byte_lines(path, zipped=path.suffix == ".gz"), 1):
            yield f"{path.name}:{line}", data


def _record(data: bytes, where: str) -> dict[str, str]:
    """The record of a line, its names and texts checked."""
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise OutcomesError(f"{where}: not JSON") from None
    if not isinstance(record, dict):
        raise OutcomesError(f"{where}: a judgement is an object")
    for name in record:
        if name not in (*_TEXTS, *_OPTIONAL, "score", "output_tokens"):
            raise OutcomesError(f"{where}: holds a field that a judgement does not have")
    for name in _TEXTS:
        if not isinstance(record.get(name), str) or not record[name]:
            raise OutcomesError(f"{where}: {name} must be a text that is not empty")
    for name in ("task", "answer"):
        if not isinstance(record.get(name, ""), str):
            raise OutcomesError(f"{where}: {name} must be a text")
    return record


def _row(record: dict[str, str], where: str) -> Row:
    _within(record.get("log_prob", 0.0), where, "log_prob", -math.inf, 0.0)
    return Row(
        where=where,
        prompt=prompt_of(record.get("task") or TASK, record["question"], where),
        model=record["worker"],
        answer=forms.conclusion(record.get("answer", "")),
        score=_within(record.get("score"), where, "score", 0.0, 1.0),
        output_tokens=_within(record.get("output_tokens"), where, "output_tokens", 0.0, 1e12),
        time=_seconds(record["time"], where),
    )


def _within(value: object, where: str, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise OutcomesError(f"{where}: {name} must be a number")
    if not least <= value <= most:
        raise OutcomesError(f"{where}: {name} is out of range ({least:g} to {most:g})")
    return float(value)


def _seconds(text: str, where: str) -> float:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OutcomesError(f"{where}: time must be ISO 8601, as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        raise OutcomesError(f"{where}: time must say its zone, as 2026-01-31T12:00:00Z")
    return time.timestamp()
