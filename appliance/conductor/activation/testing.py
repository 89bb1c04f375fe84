"""A candidate's lint findings and tests, as the command line and the gates want them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from conductor.activation.given import compared
from conductor.config import Site
from conductor.errors import ConfigError
from conductor.policy.lint import lint
from conductor.policy.selftest import CaseResult, run_tests


def linted(read: Callable[[], Site]) -> list[dict[str, Any]]:
    """Everything wrong with what `read` reads, and everything suspicious; for JSON."""
    try:
        site = read()
    except ConfigError as error:
        return [_finding(f.file, f.line, f.column, f.code, f.message) for f in error.faults]
    found = lint(site.policy, site)
    return [_finding(*item.place, item.code, item.message, item.severity) for item in found]


def tried(site: Site) -> tuple[CaseResult, ...]:
    """How the tests of a site's policy went."""
    return run_tests(site.policy, site.appliance.keys)


def place_of(result: CaseResult) -> tuple[str, int, int]:
    """File, line and column of a test, which count from 1."""
    file, line, column = result.position.rsplit(":", 2)
    return file, int(line), int(column)


def told(result: CaseResult) -> dict[str, Any]:
    """One of them, for JSON."""
    return asdict(result)


def tests_changed(old: Site, new: Site) -> list[dict[str, Any]]:
    """The data of tests in either file that the two policies decide otherwise; for JSON."""
    return [
        {
            "name": one.name,
            "before": one.before.decision,
            "after": one.after.decision,
            "rule_before": one.before.rule,
            "rule_after": one.after.rule,
            "looser": one.looser,
        }
        for one in compared(old, new)
        if not one.before.same_as(one.after)
    ]


def _finding(
    file: str, line: int, column: int, code: str, message: str, severity: str = "error"
) -> dict[str, Any]:
    return {
        "file": file,
        "line": line,
        "column": column,
        "code": code,
        "message": message,
        "severity": severity,
    }
