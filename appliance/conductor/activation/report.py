"""What came of checking a candidate: a value that crosses processes and reads well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Stage = Literal["read", "lint", "tests", "revision", "approvals", "emergency", "check", "store"]
"""Where a candidate fell. `check`: the checking itself failed, so that nothing is known."""


@dataclass(frozen=True)
class Problem:
    """One reason. `where` is `file:line:col`, "" when it is no place in a file."""

    stage: Stage
    code: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.code}: {self.message}"


@dataclass(frozen=True)
class Report:
    """A candidate's check. It may be put in force when there is no problem."""

    sha256: str
    revision: int = 0
    """0 when it could not be read."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    tests_passed: int = 0
    tests_failed: int = 0
    guarded: tuple[str, ...] = ()
    """Why approvals are needed: the guarded parts that it changes, in words."""
    approvals_needed: int = 0
    approved: tuple[str, ...] = ()
    """Ids of approvers of the active policy whose signatures hold for this candidate."""

    @property
    def ok(self) -> bool:
        return not self.problems

    def and_problem(self, problem: Problem) -> Report:
        """This report with a further problem."""
        return replace(self, problems=(*self.problems, problem))

    def facts(self) -> dict[str, Any]:
        """For JSON; `of_facts` reads it back."""
        return {"ok": self.ok, **asdict(self)}


@dataclass
class Findings:
    """Problems and warnings while they are gathered."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def refuse(self, stage: Stage, code: str, message: str, where: str = "") -> None:
        self.problems.append(Problem(stage, code, message, where))

    def warn(self, stage: Stage, code: str, message: str, where: str = "") -> None:
        self.warnings.append(Problem(stage, code, message, where))


def of_facts(facts: Mapping[str, Any]) -> Report:
    """Read what `Report.facts` gave. Raises `KeyError` and `TypeError` for anything else."""
    rest = {name: value for name, value in facts.items() if name != "ok"}
    for name in ("problems", "warnings"):
        rest[name] = tuple(Problem(**item) for item in rest[name])
    for name in ("guarded", "approved"):
        rest[name] = tuple(rest[name])
    return Report(**rest)
