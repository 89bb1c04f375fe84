"""`conductor policy`: look at a policy file before it counts. Nothing here changes anything; what
does stands in `policychange.py`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from conductor.cli.options import config_option, json_option

if TYPE_CHECKING:
    from conductor.config import Site

_SINCE = re.compile(r"([0-9]{1,4})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def policy() -> None:
    """Which data may go where: check, explain, compare and change the policy.

    \b
    Before a change:  lint, test, explain, diff, replay
    The change:       apply (approve before it, where approvers are named)
    Afterwards:       status, history, rollback

    Guide: docs/policy-admin.md
    """


def since_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--since`: how far back to look into the audit log."""
    return click.option(
        "--since",
        metavar="AGE|TIME",
        default="7d",
        show_default=True,
        callback=_since,
        help="How far back: 90m, 12h, 7d, 4w, or a time such as 2026-08-01T12:00:00Z.",
    )(function)


def file_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """The policy file, by default the one in the configuration."""
    return click.argument("file", required=False, type=_FILE)(function)


def _since(context: click.Context, option: click.Parameter, value: str) -> str:
    """The time meant, as it stands in records."""
    if found := _SINCE.fullmatch(value):
        moment = datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})
    else:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise click.BadParameter("give an age such as 7d, or a time in ISO 8601") from None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def site_with(config: Path, file: Path | None) -> Site:
    """The site of `config` with the policy in `file`, by default its own. Raises `ConfigError`."""
    from conductor.activation.sites import OTHERS, read_files, site_of
    from conductor.config import POLICY

    path = file or config / POLICY
    files = read_files(config, *OTHERS)
    files[POLICY] = read_files(path.parent, path.name)[path.name]
    return site_of(config, files, str(path))


def put(facts: dict[str, Any]) -> None:
    """Print JSON."""
    click.echo(orjson.dumps(facts, option=orjson.OPT_INDENT_2))


@policy.command()
@file_argument
@config_option
@json_option
def lint(file: Path | None, config: Path, as_json: bool) -> None:
    """Find what is wrong with FILE, and what is doubtful; exit 1 when anything is wrong.

    FILE is read beside the appliance.yaml and workers.yaml of --config, which must fit it.
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


@policy.command()
@file_argument
@config_option
@json_option
def test(file: Path | None, config: Path, as_json: bool) -> None:
    """Run the tests that FILE carries; exit 1 when one fails or a rule has none."""
    from conductor.activation.testing import told, tried
    from conductor.cli.policyshown import show_tests
    from conductor.policy.selftest import untested

    site = site_with(config, file)
    results = [told(result) for result in tried(site)]
    without = [rule.id for rule in untested(site.policy)]
    good = all(result["passed"] for result in results) and not without
    if as_json:
        put({"ok": good, "tests": results, "untested": without})
    else:
        show_tests(results, without)
    sys.exit(0 if good else 1)


@policy.command()
@click.argument("request", type=click.File("rb"))
@config_option
@click.option("--policy", "file", type=_FILE, help="A candidate.  [default: what is in force]")
@click.option("--key", "key_id", help="Id of the API key to ask as.  [default: the first]")
@click.option("--declared", metavar="LABEL", help="Label that the caller declares.")
@json_option
def explain(
    request: Any, config: Path, file: Path | None, key_id: str | None, declared: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Say for every destination whether REQUEST, a chat completion request in JSON, may go there:
    which rule decides, on what evidence, and what would have to be otherwise. '-' reads standard
    input. Nothing is called; evidence is kinds and counts, never what was found.
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


@policy.command()
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@config_option
@since_option
@json_option
def diff(old: Path, new: Path, config: Path, since: str, as_json: bool) -> None:
    """What changes from OLD to NEW: of the decisions recorded in the audit log, of the tests in
    both files, and of what needs approval. Exit 0 whatever changes."""
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


@policy.command()
@click.argument("candidate", type=_FILE)
@config_option
@since_option
@json_option
def replay(candidate: Path, config: Path, since: str, as_json: bool) -> None:
    """Decide what was decided since then anew, under CANDIDATE, from recorded features. No prompt
    is kept, so none is read. Exit 0 whatever changes."""
    from conductor.cli.policyshown import show_replayed

    facts = _replayed(since, site_with(config, candidate))
    put(facts) if as_json else show_replayed(facts)


def _replayed(since: str, new: Site, old: Site | None = None) -> dict[str, Any]:
    from conductor.policy.records import DecisionLog
    from conductor.policy.replay import replay as replayed

    decisions = DecisionLog(new.appliance.paths.audit, since)
    facts = replayed(decisions, new, old).facts()
    return {"since": since, **facts, "unreadable_records": decisions.unreadable}
