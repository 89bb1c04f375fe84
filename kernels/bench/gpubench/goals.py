"""The goals, and whether a run meets them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpubench.parts import Row
from gpubench.results import Results

SHARES = {"dense": 0.70, "fp8": 0.60, "int4": 0.50}
"""Of the measured copy bandwidth that a decode step of batch 1 is to reach."""
CONSTRAINED = 1.03
"""Time of a constrained step over that of an unconstrained one, at most."""
PLAN_S = {"fp8": 0.350, "int4": 0.250}
"""Of a 140-token plan on a cached prefix of 1,200 tokens, at most."""
PLAN_TOKENS, PREFIX_TOKENS = 140, 1_200


@dataclass(frozen=True)
class Goal:
    """One of them."""

    text: str
    aim: float
    found: float | None
    at_most: bool = True

    @property
    def verdict(self) -> str:
        """`met`, `not met` or `not measured`."""
        if self.found is None:
            return "not measured"
        met = self.found <= self.aim if self.at_most else self.found >= self.aim
        return "met" if met else "not met"


def goals(results: Results) -> list[Goal]:
    """All of them, with what the run found."""
    return [*_checks(results), *_steps(results), *_plans(results)]


def _checks(results: Results) -> Iterator[Goal]:
    """Some failures are enough to know; none is enough only if all was looked at."""
    rows = results.table("checks")
    failed = sum(not row["passed"] for row in rows) if rows else None
    if not failed and not results.complete("checks"):
        failed = None
    yield Goal("ops that differ from float64 by more than their bound", 0, failed)


def _steps(results: Results) -> Iterator[Goal]:
    rows = [row for row in _single(results, "step") if row["in a text to the end"]]
    for kind, aim in SHARES.items():
        found = _figure(rows, kind, "of copy bandwidth") if results.measured else None
        yield Goal(f"decode step, {kind}, batch 1: share of copy bandwidth", aim, found, False)
    for kind in SHARES:
        found = _figure(rows, kind, "constrained / unconstrained") if results.measured else None
        yield Goal(f"decode step, {kind}, batch 1: constrained / unconstrained", CONSTRAINED, found)


def _plans(results: Results) -> Iterator[Goal]:
    """A plan that ended early is none of those."""
    rows = [row for row in _single(results, "plan") if _is_whole(row)]
    for kind, aim in PLAN_S.items():
        found = _figure(rows, kind, "plan s") if results.measured else None
        yield Goal(f"plan of 140 tokens, {kind}, cached prefix: seconds", aim, found)


def _is_whole(row: Row) -> bool:
    tokens, prefix = row["tokens"], row["prefix"]
    assert isinstance(tokens, int)
    assert isinstance(prefix, int)
    return tokens >= PLAN_TOKENS and prefix >= PREFIX_TOKENS


def _figure(rows: list[Row], kind: str, column: str) -> float | None:
    for row in rows:
        value = row.get(column)
        if row.get("kind") == kind and isinstance(value, (int, float)):
            return float(value)
    return None


def _single(results: Results, part: str) -> list[Row]:
    return [row for row in results.table(part) if row["batch"] == 1]
