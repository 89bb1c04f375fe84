"""A table of recorded outcomes: what real models answered to real prompts, and what it cost.

`Table` is what the build stage trains on and judges by: prompts down, workers across. This file has
the table, its cost, how it is split into folds, joined and summarised, and `load`. What a folder
looks like on disk, and how strictly it is read, stands in `outcome_files.py` and, for people, in
docs/formats.md; where tables come from, in `importers/`.

Left out: playing plans against the records (`environment.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conductor_build.outcome_files import OutcomesError, Prompt, Worker, read_folder
from conductor_build.seen import normalise

__all__ = [
    "OutcomesError",
    "Prompt",
    "Summary",
    "Table",
    "Worker",
    "load",
    "merge",
    "split",
    "summarise",
]


@dataclass(frozen=True, eq=False)
class Table:
    """P prompts answered by W workers. The arrays are made read-only.

    Attributes:
        prompts: ids, all different.
        tasks: one a prompt.
        questions: one a prompt.
        workers: facts of each column, names all different.
        score: [P, W] float32, 0 to 1; NaN where no outcome is recorded.
        answer: [P, W] int32. Within one prompt two workers agree when their numbers are equal and
            not negative; -1 where no answer could be extracted or none is recorded.
        tokens: [P, W] float32, output tokens; NaN where not recorded.
        comparable: whether answers are recorded at all.

    Raises `OutcomesError` when shapes or names do not fit together.
    """

    prompts: tuple[str, ...]
    tasks: tuple[str, ...]
    questions: tuple[str, ...]
    workers: tuple[Worker, ...]
    score: NDArray[np.float32]
    answer: NDArray[np.int32]
    tokens: NDArray[np.float32]
    comparable: bool

    def __post_init__(self) -> None:
        shape = (len(self.prompts), len(self.workers))
        if not (len(self.tasks) == len(self.questions) == shape[0]):
            raise OutcomesError("a table needs one task and one question for every prompt")
        if any(part.shape != shape for part in (self.score, self.answer, self.tokens)):
            raise OutcomesError(f"every array of a table needs the shape {shape}")
        if len(set(self.prompts)) != shape[0] or len(set(self.names)) != shape[1]:
            raise OutcomesError("prompts and workers of a table must have different names")
        for part in (self.score, self.answer, self.tokens):
            part.setflags(write=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names, in column order."""
        return tuple(worker.name for worker in self.workers)

    def rows(self, index: NDArray[np.int64] | NDArray[np.bool_] | Sequence[int]) -> Table:
        """The prompts at `index` (positions or a mask), in that order."""
        chosen = np.arange(len(self.prompts))[np.asarray(index)] if len(index) else np.arange(0)
        return replace(
            self,
            prompts=tuple(self.prompts[i] for i in chosen),
            tasks=tuple(self.tasks[i] for i in chosen),
            questions=tuple(self.questions[i] for i in chosen),
            score=self.score[chosen],
            answer=self.answer[chosen],
            tokens=self.tokens[chosen],
        )

    def columns(self, names: Sequence[str]) -> Table:
        """The named workers, in that order.

        Raises `OutcomesError` when a name is unknown, given twice, or has no outcome here.
        """
        place = {name: i for i, name in enumerate(self.names)}
        unknown = [name for name in names if name not in place]
        if not names or unknown:
            what = f"no worker {unknown[0]!r}" if unknown else "a pool needs at least one worker"
            raise OutcomesError(f"{what}; the table has {', '.join(self.names)}")
        chosen = [place[name] for name in names]
        for i in chosen:
            if np.isnan(self.score[:, i]).all():
                raise OutcomesError(f"{self.names[i]!r} has no outcome in this table: leave it out")
        return self._at(chosen)

    def cost(self) -> NDArray[np.float64]:
        """What every answer cost, [P, W], in USD per 1,000 prompts, output tokens only.

        An answer without a token count is charged by the size of its model: billions of parameters
        / 1,000. NaN where no outcome is recorded. Raises `OutcomesError` naming the workers whose
        price (or size) is needed and not known: `priced()` leaves those out.
        """
        by_price, by_size = self._charged()
        for used, fact, what in (
            (by_price, self._prices(), "usd_out_per_mtok"),
            (by_size, self._sizes(), "params_b (some answers have no output_tokens)"),
        ):
            unknown = used.any(axis=0) & np.isnan(fact)
            if unknown.any():
                names = ", ".join(self.names[i] for i in np.flatnonzero(unknown))
                raise OutcomesError(
                    f"cost needs {what} of {names}: add it to workers.csv, or leave the worker out"
                )
        usd = np.where(by_size, self._sizes(), self.tokens * self._prices()) / 1e3
        return np.where(by_price | by_size, usd, np.nan)

    def priced(self) -> Table:
        """The workers whose every answer `cost` can charge; there may be none."""
        by_price, by_size = self._charged()
        unknown = (by_price & np.isnan(self._prices())) | (by_size & np.isnan(self._sizes()))
        return self._at([int(i) for i in np.flatnonzero(~unknown.any(axis=0))])

    def _charged(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which answers are charged by tokens and price, and which by the model's size."""
        answered, counted = ~np.isnan(self.score), ~np.isnan(self.tokens)
        return answered & counted, answered & ~counted

    def _prices(self) -> NDArray[np.float64]:
        return np.array([worker.usd_out_per_mtok for worker in self.workers], dtype=np.float64)

    def _sizes(self) -> NDArray[np.float64]:
        return np.array([worker.params_b for worker in self.workers], dtype=np.float64)

    def _at(self, chosen: Sequence[int]) -> Table:
        return replace(
            self,
            workers=tuple(self.workers[i] for i in chosen),
            score=self.score[:, chosen],
            answer=self.answer[:, chosen],
            tokens=self.tokens[:, chosen],
        )


def load(folder: Path) -> Table:
    """Read a folder (docs/formats.md). Prompts as in its file, workers by name.

    Raises `OutcomesError` naming file and line.
    """
    prompts, outcomes, facts = read_folder(folder)
    names = sorted({outcome.model for outcome in outcomes})
    row = {prompt.id: i for i, prompt in enumerate(prompts)}
    column = {name: j for j, name in enumerate(names)}
    shape = (len(prompts), len(names))
    score = np.full(shape, np.nan, dtype=np.float32)
    tokens = np.full(shape, np.nan, dtype=np.float32)
    answers: list[dict[int, str]] = [{} for _ in prompts]
    for outcome in outcomes:
        i, j = row[outcome.prompt], column[outcome.model]
        score[i, j] = outcome.score
        if outcome.output_tokens is not None:
            tokens[i, j] = outcome.output_tokens
        if outcome.answer:
            answers[i][j] = outcome.answer
    return Table(
        prompts=tuple(prompt.id for prompt in prompts),
        tasks=tuple(prompt.task for prompt in prompts),
        questions=tuple(prompt.question for prompt in prompts),
        workers=tuple(facts.get(name) or Worker.unlisted(name) for name in names),
        score=score,
        answer=_numbered(answers, shape),
        tokens=tokens,
        comparable=any(answers),
    )


def _numbered(answers: list[dict[int, str]], shape: tuple[int, int]) -> NDArray[np.int32]:
    """Answers of a prompt as numbers, in the order of the strings: the file's order is no part."""
    numbers = np.full(shape, -1, dtype=np.int32)
    for i, given in enumerate(answers):
        number = {text: n for n, text in enumerate(sorted(set(given.values())))}
        for j, text in given.items():
            numbers[i, j] = number[text]
    return numbers


def split(table: Table, *, folds: int, seed: int) -> NDArray[np.int64]:
    """The fold, 0 to `folds` - 1, of every prompt: balanced within each task and overall.

    It depends on ids, tasks and questions alone, not on the order of rows. Prompts that ask the
    same question (as `seen` compares them) share a fold: none is judged on what training saw.
    """
    if not 2 <= folds <= len(table.prompts):
        raise OutcomesError(f"{len(table.prompts)} prompts cannot be split into {folds} folds")

    def draw(text: str) -> bytes:
        return hashlib.sha256(f"{seed}\n{text}".encode()).digest()

    asked = [normalise(question) for question in table.questions]
    first: dict[str, str] = {}
    for prompt, question in zip(table.prompts, asked, strict=True):
        first[question] = min(first.get(question, prompt), prompt)
    leading = [i for i, prompt in enumerate(table.prompts) if first[asked[i]] == prompt]
    leading.sort(key=lambda i: (table.tasks[i], draw(table.prompts[i])))
    fold = {asked[i]: rank % folds for rank, i in enumerate(leading)}
    return np.array([fold[question] for question in asked], dtype=np.int64)


def merge(tables: Sequence[Table]) -> Table:
    """Several tables in one: all prompts, all workers; what one did not record is NaN (or -1).

    Raises `OutcomesError` for a prompt id in two tables (their answers have no common numbering)
    and for a worker of which two tables know different facts.
    """
    if not tables:
        raise OutcomesError("there is no table to merge")
    workers = _merged_workers(tables)
    column = {name: j for j, name in enumerate(workers)}
    shape = (sum(len(table.prompts) for table in tables), len(workers))
    score = np.full(shape, np.nan, dtype=np.float32)
    tokens = np.full(shape, np.nan, dtype=np.float32)
    answer = np.full(shape, -1, dtype=np.int32)
    top = 0
    for table in tables:
        place = np.ix_(range(top, top + len(table.prompts)), [column[n] for n in table.names])
        score[place], tokens[place], answer[place] = table.score, table.tokens, table.answer
        top += len(table.prompts)
    return Table(
        prompts=tuple(prompt for table in tables for prompt in table.prompts),
        tasks=tuple(task for table in tables for task in table.tasks),
        questions=tuple(question for table in tables for question in table.questions),
        workers=tuple(workers.values()),
        score=score,
        answer=answer,
        tokens=tokens,
        comparable=any(table.comparable for table in tables),
    )


def _merged_workers(tables: Sequence[Table]) -> dict[str, Worker]:
    merged: dict[str, Worker] = {}
    for worker in (worker for table in tables for worker in table.workers):
        known = merged.setdefault(worker.name, worker)
        if repr(known) != repr(worker):  # NaN differs from itself, its text does not
            raise OutcomesError(f"two tables know different facts of {worker.name!r}")
    return merged


@dataclass(frozen=True)
class Summary:
    """One model over all prompts it answered. Cost in USD per 1,000 prompts, output tokens only."""

    model: str
    prompts: int
    score: float
    score_by_task: Mapping[str, float]
    cost_usd_per_1k: float | None


def summarise(table: Table) -> list[Summary]:
    """One summary a worker, the best first. Cost is None unless every answer's is known."""
    rows = [_summary(table, j) for j in range(len(table.workers))]
    return sorted(rows, key=lambda row: (-row.score, row.model))


def _summary(table: Table, column: int) -> Summary:
    answered = ~np.isnan(table.score[:, column])
    tasks = np.array(table.tasks)
    by_task = {
        task: _mean(table.score[answered & (tasks == task), column])
        for task in sorted(set(tasks[answered]))
    }
    usd = table.tokens[answered, column] * table.workers[column].usd_out_per_mtok / 1e3
    return Summary(
        model=table.workers[column].name,
        prompts=int(answered.sum()),
        score=_mean(table.score[answered, column]),
        score_by_task={str(task): score for task, score in by_task.items()},
        cost_usd_per_1k=None if np.isnan(usd).any() else _mean(usd),
    )


def _mean(values: NDArray[np.floating[Any]]) -> float:
    return float(values.mean(dtype=np.float64))
