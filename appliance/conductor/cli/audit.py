"""`conductor audit`: check the record of what was decided; ask it; keep it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from conductor.audit import anchor, keys
from conductor.audit.verify import Report, verify
from conductor.cli.auditexport import export_command
from conductor.cli.auditkeep import head_command, retain_command, rotate_command
from conductor.cli.auditoptions import EXIT_NO_LOG, Noted, directory_argument, noted_options
from conductor.cli.auditquery import query_command
from conductor.cli.auditreport import report_command
from conductor.cli.auditverified import describe
from conductor.cli.options import json_option
from conductor.errors import AuditError, ConfigError


@click.group()
def audit() -> None:
    """Check and ask the audit log: who sent what kind of data where, and under which rule."""


@audit.command("verify")
@directory_argument
@noted_options
@click.option(
    "--from",
    "since",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A signed checkpoint up to which the log was verified before: read only what follows it.",
)
@click.option(
    "--keys",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder with audit.key, to check the MAC of each record too.",
)
@json_option
@click.pass_context
def verify_command(context: click.Context, /, as_json: bool, **given: Any) -> None:
    """Check every hash, number, time and checkpoint of the log in DIRECTORY. It may be in use.

    \b
    Exit codes:
      0  the chain holds (and contains --head and every --anchor)
      1  it does not
      2  there is no log, or it cannot be read

    Keep what `conductor audit head` prints, or the head printed here, off this machine, and give
    it as --anchor, or --head, next time.
    """
    try:
        report = _verified(given)
    except (AuditError, ConfigError) as error:
        click.echo(json.dumps({"ok": None, "error": str(error)}) if as_json else str(error))
        context.exit(EXIT_NO_LOG)
    click.echo(json.dumps(report.as_json()) if as_json else describe(report))
    context.exit(0 if report.ok else 1)


def _verified(given: dict[str, Any]) -> Report:
    noted, since, folder = Noted.take(given), given["since"], given["folder"]
    return verify(
        given["directory"],
        noted.head,
        trust=noted.read_key(),
        key=keys.load(folder) if folder else None,
        anchors=noted.read_anchors(),
        since=anchor.read(since) if since else None,
    )


for command in (
    query_command,
    report_command,
    export_command,
    head_command,
    rotate_command,
    retain_command,
):
    audit.add_command(command)
