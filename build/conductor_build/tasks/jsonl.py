"""Questions of a file: JSON lines, read strictly, a fault with file and line.

    {"question": "...", "answer": "Paris"}                            exact; or a list of accepted
    {"question": "...", "answer": 12.5, "tolerance": 0.01}            numeric; 0 if left out
    {"question": "...", "tests": "assert double(2) == 4"}            code: Python that may not fail

`id` and `domain` may stand in each line; by default the line's number and `general`, or `code`
where there are tests. Files that end in `.gz` are read as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from conductor_build.outcome_files import OutcomesError, byte_lines
from conductor_build.tasks import judge
from conductor_build.tasks.common import Example, TaskError, within
from conductor_build.tasks.jail import Jail

_DOMAIN = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_FIELDS = frozenset({"id", "domain", "question", "answer", "tolerance", "tests"})


class JsonlTask:
    """The questions of a file. `jail` runs the programs of code questions."""

    def __init__(self, examples: Sequence[Example], jail: Jail | None = None) -> None:
        self._examples = examples
        self._jail = jail or Jail()

    @classmethod
    def read(cls, path: Path, jail: Jail | None = None) -> JsonlTask:
        """Read a file. Raises `TaskError`."""
        examples: dict[str, Example] = {}
        for where, data in _lines(path):
            example = _example(data, where)
            if examples.setdefault(example.key, example) is not example:
                raise TaskError(f"{where}: this id was given before")
        if not examples:
            raise TaskError(f"{path}: no question is in it")
        return cls(tuple(examples.values()), jail)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:
        return self._examples[within(self, index)]

    def score(self, example: Example, answer: str) -> float:
        facts: Any = example.facts
        if "tests" in facts:
            return float(judge.program(answer, facts["tests"], self._jail))
        if "number" in facts:
            return float(judge.numeric(answer, facts["number"], facts["tolerance"]))
        return float(judge.exact(answer, facts["accepted"]))

    def domain(self, example: Example) -> str:
        return str(example.facts["domain"])


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        for line, data in enumerate(byte_lines(path, zipped=path.suffix == ".gz"), 1):
            yield f"{path.name}:{line}", data
    except OutcomesError as fault:
        raise TaskError(str(fault)) from None


def _example(data: bytes, where: str) -> Example:
    try:
        row = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise TaskError(f"{where}: not JSON") from None
    if not isinstance(row, dict) or not _FIELDS.issuperset(row):
        raise TaskError(f"{where}: a question is an object of {', '.join(sorted(_FIELDS))}")
    _check(row, where)
    line = where.rpartition(":")[2]
    return Example(row.get("id", line), row["question"], {**_judged(row, where), **_kind(row)})


def _check(row: dict[str, Any], where: str) -> None:
    for name in ("question", "id", "domain", "tests"):
        if name in row and (not isinstance(row[name], str) or not row[name]):
            raise TaskError(f"{where}: {name} must be a text that is not empty")
    if "question" not in row:
        raise TaskError(f"{where}: there is no question")
    if "domain" in row and not _DOMAIN.fullmatch(row["domain"]):
        raise TaskError(f"{where}: a domain is a lower case word")
    if ("answer" in row) == ("tests" in row):
        raise TaskError(f"{where}: give either an answer or tests")


def _kind(row: dict[str, Any]) -> dict[str, object]:
    return {"domain": row.get("domain", "code" if "tests" in row else "general")}


def _judged(row: dict[str, Any], where: str) -> dict[str, object]:
    """What `score` needs."""
    if "tests" in row:
        return {"tests": _compiled(row["tests"], where)}
    answer, tolerance = row["answer"], row.get("tolerance")
    if _is_number(answer):
        if tolerance is not None and not (_is_number(tolerance) and tolerance >= 0):
            raise TaskError(f"{where}: tolerance must be a number, 0 or more")
        return {"number": float(answer), "tolerance": float(tolerance or 0)}
    if tolerance is not None:
        raise TaskError(f"{where}: a tolerance needs an answer that is a number")
    accepted = [answer] if isinstance(answer, str) else answer
    if not (isinstance(accepted, list) and accepted and all(map(_is_text, accepted))):
        raise TaskError(f"{where}: answer must be a text, a number, or a list of texts")
    return {"accepted": tuple(accepted)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _compiled(tests: str, where: str) -> str:
    """The tests, which must at least be Python: else every answer would be wrong."""
    try:
        compile(tests, "tests", "exec")
    except (SyntaxError, ValueError) as fault:
        line = getattr(fault, "lineno", None) or 1
        raise TaskError(f"{where}: line {line} of the tests is not Python") from None
    return tests
