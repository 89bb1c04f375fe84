"""Rows of a source, gathered and written in the layout that `outcomes.load` reads.

A folder appears whole or not at all. The same rows give the same bytes, in whatever order they
came: sorted, and compressed without a time.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from conductor_build.importers.rows import Faults, Row
from conductor_build.outcome_files import (
    OUTCOMES,
    PROMPTS,
    WORKERS,
    OutcomesError,
    Prompt,
    Worker,
    read_folder,
)


@dataclass(frozen=True)
class Gathered:
    """What a folder will hold: prompts by id, rows by prompt id and model, facts by model."""

    prompts: Mapping[str, Prompt]
    rows: Mapping[tuple[str, str], Row]
    workers: Mapping[str, Worker]


def gather(
    rows: Iterable[Row],
    faults: Faults,
    *,
    workers: Mapping[str, Worker],
    only: Collection[str] | None = None,
    latest: bool = False,
) -> Gathered:
    """Check rows against each other, and put a price to models whose rows have costs.

    `only` are the ids of prompts to keep. `latest`: a second answer of a model to a prompt replaces
    the first where it is the later one; else it is a fault. Raises `OutcomesError`.
    """
    prompts: dict[str, Prompt] = {}
    kept: dict[tuple[str, str], Row] = {}
    for row in rows:
        if only is not None and row.prompt.id not in only:
            continue
        try:
            _check(row)
            if prompts.setdefault(row.prompt.id, row.prompt) != row.prompt:
                raise OutcomesError(f"{row.where}: its prompt was given before with another text")
            before = kept.get((row.prompt.id, row.model))
            if before and not latest:
                raise OutcomesError(f"{row.where}: repeats the answer of {before.where}")
        except OutcomesError as fault:
            faults.add(fault)
            continue
        if before is None or row.time >= before.time:
            kept[row.prompt.id, row.model] = row
    if not kept:
        raise OutcomesError("there is no outcome to write")
    return Gathered(
        {prompt_id: prompts[prompt_id] for prompt_id, _ in kept}, kept, _priced(kept, workers)
    )


def _check(row: Row) -> None:
    prompt = row.prompt
    if not (row.model and prompt.task and prompt.question):
        raise OutcomesError(f"{row.where}: model, task and question must not be empty")
    texts = (prompt.id, prompt.task, prompt.question, prompt.gold or "", row.model, row.answer)
    if not all(_is_unicode(text) for text in texts):
        raise OutcomesError(f"{row.where}: holds half a character (a lone surrogate)")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _priced(
    rows: Mapping[tuple[str, str], Row], workers: Mapping[str, Worker]
) -> dict[str, Worker]:
    """Facts of the models that answered. Where costs were given, they say the price."""
    cost: dict[str, float] = defaultdict(float)
    tokens: dict[str, float] = defaultdict(float)
    for row in rows.values():
        if row.cost_usd is not None and row.output_tokens is not None:
            cost[row.model] += row.cost_usd
            tokens[row.model] += row.output_tokens
    facts: dict[str, Worker] = {}
    for model in sorted({model for _, model in rows}):
        if model in workers:
            facts[model] = workers[model]
        if model not in cost:
            continue
        if not tokens[model]:
            raise OutcomesError(f"{model!r}: its answers have a cost, and not one token")
        known = facts.get(model, Worker.unlisted(model))
        facts[model] = replace(known, usd_out_per_mtok=cost[model] * 1e6 / tokens[model])
    return facts


def write_folder(out: Path, gathered: Gathered) -> None:
    """Write the folder `out`, which must not exist.

    Raises `OutcomesError`, and then leaves nothing behind.
    """
    if out.exists() or out.is_symlink():
        raise OutcomesError(f"{out} is there already: choose another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
        try:
            (unfinished / PROMPTS).write_bytes(_zipped(_prompts(gathered)))
            (unfinished / OUTCOMES).write_bytes(_zipped(_outcomes(gathered)))
            (unfinished / WORKERS).write_bytes(_workers(gathered))
            read_folder(unfinished)  # what is written can be read
            unfinished.chmod(0o755)
            unfinished.rename(out)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise OutcomesError(f"{out} cannot be written: {error.strerror}") from None


def _zipped(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=9, mtime=0)


def _prompts(gathered: Gathered) -> bytes:
    lines = []
    for _, prompt in sorted(gathered.prompts.items()):
        line = {"id": prompt.id, "task": prompt.task, "question": prompt.question}
        lines.append(line if prompt.gold is None else {**line, "answer": prompt.gold})
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def _outcomes(gathered: Gathered) -> bytes:
    rows = [row for _, row in sorted(gathered.rows.items())]
    binary = all(row.score in (0.0, 1.0) for row in rows)
    answered = any(row.answer for row in rows)
    counted = any(row.output_tokens is not None for row in rows)
    columns = ["prompt_id", "model", *["answer"] * answered, "correct" if binary else "score"]
    lines = [[*columns, *["output_tokens"] * counted]]
    for row in rows:
        answer = [row.answer] * answered
        lines.append(
            [row.prompt.id, row.model, *answer, _plain(row.score)]
            + [_plain(row.output_tokens)] * counted
        )
    return _csv(lines)


def _workers(gathered: Gathered) -> bytes:
    lines = [["model", "kind", "params_b", "usd_in_per_mtok", "usd_out_per_mtok"]]
    for name, worker in gathered.workers.items():
        facts = (worker.params_b, worker.usd_in_per_mtok, worker.usd_out_per_mtok)
        kind = "local" if worker.local else "remote"
        lines.append([name, kind, *("" if math.isnan(fact) else _plain(fact) for fact in facts)])
    return _csv(lines)


def _csv(lines: list[list[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


def _plain(number: float | None) -> str:
    """A number as it is read back: whole ones without a point, none as nothing."""
    if number is None:
        return ""
    return str(int(number)) if number == int(number) else repr(number)
