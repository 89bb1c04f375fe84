"""The appliance's own log of judged answers: JSON lines, one a judgement (docs/formats.md).

What a user thought of an answer becomes an outcome of the worker that gave it. A question may be
asked again: of two judgements of one worker on one question, the later one counts. A worker that
was shown more or less than the question did not answer it alone: what was thought of that is no
outcome of one worker, and no row.

Left out: `rounds`, `log_prob` and costs are checked here and are for training off-policy, which
needs how each plan came about; a table does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from conductor.errors import PlanError
from conductor.plan.language import Plan, View, parse, resolve
from conductor_build.importers import forms
from conductor_build.importers.rows import Faults, Row, prompt_of
from conductor_build.outcome_files import OutcomesError, byte_lines

Record = dict[str, Any]

TASK = "feedback"
"""Task of a judgement that names none."""

_TEXTS = ("request_id", "time", "question", "worker", "plan")
_OPTIONAL_TEXTS = ("task", "answer", "concludes")
_NUMBERS = ("score", "output_tokens", "log_prob", "cost_usd", "cost_weight")
_PLANNED = ("plan", "candidates", "engine", "where", "bundle", "look", "log_prob")
"""What a round has, exactly."""
_ALONE = View(question=True, steps=())
_MOST = 1e12


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
            if _answered_alone(record):
                yield row


def _lines(logs: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    for path in logs:
        for line, data in enumerate(byte_lines(path, zipped=path.suffix == ".gz"), 1):
            yield f"{path.name}:{line}", data


def _record(data: bytes, where: str) -> Record:
    """The record of a line, its names and texts checked."""
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise OutcomesError(f"{where}: not JSON") from None
    if not isinstance(record, dict):
        raise OutcomesError(f"{where}: a judgement is an object")
    for name in record:
        if name not in (*_TEXTS, *_OPTIONAL_TEXTS, *_NUMBERS, "step", "rounds"):
            raise OutcomesError(f"{where}: holds a field that a judgement does not have")
    for name in _TEXTS:
        if not isinstance(record.get(name), str) or not record[name]:
            raise OutcomesError(f"{where}: {name} must be a text that is not empty")
    for name in _OPTIONAL_TEXTS:
        if not isinstance(record.get(name, ""), str):
            raise OutcomesError(f"{where}: {name} must be a text")
    if "answer" in record and "concludes" in record:
        raise OutcomesError(f"{where}: give the answer or what it concludes with, not both")
    _check_rounds(record, where)
    return record


def _check_rounds(record: Record, where: str) -> None:
    """`step` and `rounds` come together, and belong together."""
    if ("step" in record) is not ("rounds" in record):
        raise OutcomesError(f"{where}: step and rounds are given together")
    if "rounds" not in record:
        return
    rounds = record["rounds"]
    if not isinstance(rounds, list) or not rounds:
        raise OutcomesError(f"{where}: rounds must be a list that is not empty")
    for one in rounds:
        if not isinstance(one, dict) or set(one) != set(_PLANNED):
            raise OutcomesError(f"{where}: a round has the fields {', '.join(_PLANNED)}")
        if one["log_prob"] is not None:
            _within(one["log_prob"], where, "log_prob", -math.inf, 0.0)
    if _led(record, where) is None:
        raise OutcomesError(f"{where}: step must be one of the plans' steps")


def _led(record: Record, where: str) -> tuple[Plan, int] | None:
    """The plan that has `step`, and which of its steps that is. Steps count on over the rounds."""
    first = 0
    for one in record["rounds"]:
        try:
            plan = parse(one["plan"], first)
        except (PlanError, TypeError, AttributeError):
            raise OutcomesError(f"{where}: the plan of a round is no plan") from None
        first += len(plan.steps)
        if isinstance(record["step"], int) and plan.first <= record["step"] < first:
            return plan, record["step"] - plan.first
    return None


def _answered_alone(record: Record) -> bool:
    """Whether the worker was shown the question and nothing else; so in records that do not say."""
    led = _led(record, "") if "rounds" in record else None
    return led is None or resolve(led[0].steps[led[1]].access, record["step"]) == _ALONE


def _row(record: Record, where: str) -> Row:
    _within(record.get("log_prob", 0.0), where, "log_prob", -math.inf, 0.0)
    for name in ("cost_usd", "cost_weight"):
        _within(record.get(name, 0.0), where, name, 0.0, _MOST)
    concludes = record.get("concludes")
    return Row(
        where=where,
        prompt=prompt_of(record.get("task") or TASK, record["question"], where),
        model=record["worker"],
        answer=forms.conclusion(record.get("answer", "")) if concludes is None else concludes,
        score=_within(record.get("score"), where, "score", 0.0, 1.0),
        output_tokens=_within(record.get("output_tokens"), where, "output_tokens", 0.0, _MOST),
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
