"""`conductor audit`: check the record of what was decided."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from conductor.audit.verify import Report, verify
from conductor.errors import AuditError


@click.group()
def audit() -> None:
    """Check the audit log: who sent what kind of data where, and under which rule."""


@audit.command("verify")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--head",
    metavar="HASH",
    help="A head noted earlier and kept elsewhere. Proves that nothing up to it was cut off or "
    "written anew, which the chain alone cannot.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.pass_context
def verify_command(
    context: click.Context, directory: Path, head: str | None, as_json: bool
) -> None:
    """Check every hash, number and time of the log in DIRECTORY. The log may be in use.

    \b
    Exit codes:
      0  the chain holds (and contains --head)
      1  it does not
      2  there is no log, or it cannot be read

    Note the head that is printed, off this machine, and give it as --head next time.
    """
    if head is not None and not _is_hash(head):
        raise click.UsageError("--head is 64 hexadecimal digits, as printed by this command.")
    try:
        report = verify(directory, head)
    except AuditError as error:
        click.echo(json.dumps({"ok": None, "error": str(error)}) if as_json else str(error))
        context.exit(2)
    click.echo(json.dumps(report.as_json()) if as_json else describe(report))
    context.exit(0 if report.ok else 1)


def describe(report: Report) -> str:
    """The report for people."""
    lines = [
        f"records   {report.records}",
        f"of which  {_counts(report.events)}",
        f"from      {report.first_ts or '-'}",
        f"to        {report.last_ts or '-'}",
        f"head      {report.head}",
    ]
    if report.torn_bytes:
        lines.append(f"torn      {report.torn_bytes} bytes at the end: unfinished, no tampering")
    if report.clock_set_back:
        lines.append(f"clock     was set back {report.clock_set_back} times")
    if report.head_found is False:
        lines.append("HEAD      the given head is not part of this log: it was cut or rewritten")
    fault = report.tampering
    if fault is not None:
        lines.append(
            f"TAMPERED  at record {fault.seq} ({fault.segment}:{fault.line}), {fault.kind}"
        )
        lines.append(f"          {fault.explanation}")
    lines.append("the chain holds" if report.ok else "the log cannot be trusted from there on")
    return "\n".join(lines)


def _counts(events: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {event}" for event, count in events.items() if count) or "-"


def _is_hash(text: str) -> bool:
    return len(text) == 64 and all(digit in "0123456789abcdefABCDEF" for digit in text)
