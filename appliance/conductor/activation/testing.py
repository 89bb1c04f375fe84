"""A candidate's lint findings and tests, as the command line and the gates want them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from conductor.activation.given import compared
from conductor.config import Site
from conductor.core import Scan
from conductor.detect.profile import Profile
from conductor.detect.scan import Scanner
from conductor.errors import ConfigError
from conductor.policy.lint import lint
from conductor.policy.selftest import CaseResult, run_tests

_TIMEOUT_S = 60.0
"""For one text of a test, the start of the model included."""


def linted(read: Callable[[], Site]) -> list[dict[str, Any]]:
    """Everything wrong with what `read` reads, and everything suspicious; for JSON."""
    try:
        site = read()
    except ConfigError as error:
        return [_finding(f.file, f.line, f.column, f.code, f.message) for f in error.faults]
    found = lint(site.policy, site)
    return [_finding(*item.place, item.code, item.message, item.severity) for item in found]


def tried(site: Site) -> tuple[CaseResult, ...]:
    """How the tests of a site's policy went by rules alone: milliseconds, for a start, in whatever
    process. Where the policy seeks names, texts that fail so are left out: names may be what those
    tests are about. `tried_whole` leaves out nothing."""
    policy = site.policy
    results = run_tests(policy, site.appliance.keys)
    if not policy.profile.names:
        return results
    pairs = zip(policy.tests, results, strict=True)
    return tuple(result for case, result in pairs if result.passed or case.given.text is None)


def tried_whole(site: Site) -> tuple[CaseResult, ...]:
    """How they all went. Where the policy seeks names a scanning process with the model is asked,
    which takes a second; a text whose names could not be sought fails its test. Not for a thread
    that runs an event loop."""
    policy, keys = site.policy, site.appliance.keys
    if not policy.profile.names or all(case.given.text is None for case in policy.tests):
        return run_tests(policy, keys)
    scanner = Scanner(timeout_s=_TIMEOUT_S, names_model=site.appliance.paths.models)
    with asyncio.Runner() as runner:

        def scan(value: object, profile: Profile) -> Scan:
            return runner.run(scanner.scan(value, profile=profile))

        try:
            runner.run(scanner.start())
            return run_tests(policy, keys, scan)
        finally:
            runner.run(scanner.close())


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
