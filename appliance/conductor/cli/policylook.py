"""`conductor policy lint, test, explain, diff, replay`: look at a policy before it counts.

Nothing here changes anything; what does stands in `policychange.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.cli.options import config_option, json_option
from conductor.cli.policyoptions import FILE, file_argument, put, since_option, site_with

if TYPE_CHECKING:
    from conductor.config import Site


@click.command()
@file_argument
@config_option
@json_option
def lint(file: Path | None, config: Path, as_json: bool) -> None:
    """Find what is wrong or doubtful in FILE.

    FILE is read beside the appliance.yaml and workers.yaml of --config, which must fit it. Exit 1
    when anything is wrong; what is only doubtful is told.
    """
    from conductor.activation.testing import linted
    from conductor.cli.policyshown import show_findings

    findings = linted(lambda: site_with(config, file))
    wrong = any(one["severity"] == "error" for one in findings)
    if as_json:
        put({"ok": not wrong, "findings": findings})
    else:
        show_findings(findings)
    sys.exit(1 if wrong else 0)


@click.command()
@file_argument
@config_option
@json_option
def test(file: Path | None, config: Path, as_json: bool) -> None:
    """Run the tests that FILE carries.

    Exit 1 when one fails, or a guardrail or rule has none.
    """
    from conductor.activation.testing import told, tried_whole
    from conductor.cli.policyshown import show_tests
    from conductor.policy.selftest import untested

    site = site_with(config, file)
    results = [told(result) for result in tried_whole(site)]
    without = [rule.id for rule in untested(site.policy)]
    good = all(result["passed"] for result in results) and not without
    if as_json:
        put({"ok": good, "tests": results, "untested": without})
    else:
        show_tests(results, without)
    sys.exit(0 if good else 1)


@click.command()
@click.argument("request", type=click.File("rb"))
@config_option
@click.option("--policy", "file", type=FILE, help="A candidate.  [default: what is in force]")
@click.option("--key", "key_id", help="Id of the API key to ask as.  [default: the first]")
@click.option("--declared", metavar="LABEL", help="Label that the caller declares.")
@json_option
def explain(
    request: Any, config: Path, file: Path | None, key_id: str | None, declared: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Say where REQUEST may go, and why.

    REQUEST is a file with a chat completion request in JSON; '-' reads standard input. For every
    destination: which rule decides, on what evidence, and what would have to be otherwise. Nothing
    is called; evidence is kinds and counts, never what was found.
    """
    import asyncio

    from conductor.activation.startup import starting
    from conductor.cli.policyshown import show_explanation

    site = site_with(config, file) if file else starting(config).site
    explained = asyncio.run(_explained(site, request.read(), key_id, declared))
    if as_json:
        put(explained)
    else:
        show_explanation(explained)


async def _explained(
    site: Site, raw: bytes, key_id: str | None, declared: str | None
) -> dict[str, Any]:
    from conductor.api.policyexplain import explain_request
    from conductor.logs import configure
    from conductor.run.services import make_scanner

    configure("console", "warning")
    scanner = make_scanner(site.appliance)
    await scanner.start()
    try:
        return await explain_request(site, scanner, raw, key_id, declared)
    finally:
        await scanner.close()


@click.command()
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@config_option
@since_option
@json_option
def diff(old: Path, new: Path, config: Path, since: str, as_json: bool) -> None:
    """Tell what changes from OLD to NEW.

    Of the decisions recorded in the audit log, of the tests in both files, and of what needs
    approval. Exit 0 whatever changes.
    """
    from conductor.activation.testing import tests_changed
    from conductor.cli.policyshown import show_diff
    from conductor.policy.tighten import guarded_changes, loosenings

    before, after = site_with(config, old), site_with(config, new)
    facts = {
        "recorded": _replayed(since, after, before),
        "tests": tests_changed(before, after),
        "guarded": list(guarded_changes(before.policy, after.policy)),
        "looser": list(loosenings(before.policy, after.policy)),
    }
    put(facts) if as_json else show_diff(facts)


@click.command()
@click.argument("candidate", type=FILE)
@config_option
@since_option
@json_option
def replay(candidate: Path, config: Path, since: str, as_json: bool) -> None:
    """Decide what is recorded anew, by CANDIDATE.

    From recorded features: no prompt is kept, so none is read. Exit 0 whatever changes.
    """
    from conductor.cli.policyshown import show_replayed

    facts = _replayed(since, site_with(config, candidate))
    put(facts) if as_json else show_replayed(facts)


def _replayed(since: str, new: Site, old: Site | None = None) -> dict[str, Any]:
    from conductor.policy.records import DecisionLog
    from conductor.policy.replay import replay as replayed

    decisions = DecisionLog(new.appliance.paths.audit, since)
    facts = replayed(decisions, new, old).facts()
    return {"since": since, **facts, "unreadable_records": decisions.unreadable}
