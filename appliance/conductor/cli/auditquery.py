"""`conductor audit query`: what was sent where, carrying which label."""

from __future__ import annotations

import json
from typing import Any

import click

from conductor.audit.query import Answer, Found, Question, Totals, Wanted
from conductor.cli.auditoptions import (
    EXIT_INCOMPLETE,
    EXIT_NO_LOG,
    completeness,
    opened_stretch,
    stretch_options,
)
from conductor.cli.options import json_option
from conductor.errors import AuditError, ConfigError


def _label(_context: click.Context, _param: click.Parameter, value: str | None) -> Wanted | None:
    try:
        return Wanted.parse(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _levels(_context: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(level.strip() for level in value.split(",")) if value else ()


@click.command("query")
@stretch_options
@click.option(
    "--label",
    callback=_label,
    metavar="LABEL",
    help="Carrying this label or one above it: a level, a compartment, or both (internal+pii).",
)
@click.option("--remote", is_flag=True, help="Only what left the appliance.")
@click.option("--destination", default="", metavar="ID", help="Only to this destination.")
@click.option("--rule", default="", metavar="ID", help="Only what this rule allowed.")
@click.option("--key", default="", metavar="ID", help="Only for this caller.")
@click.option("--request", "request_id", default="", metavar="ID", help="Only of this request.")
@click.option(
    "--lowered", is_flag=True, help="Also what carried the label until a declassifier lowered it."
)
@click.option(
    "--levels",
    callback=_levels,
    metavar="LOWEST,...,HIGHEST",
    help="The order of the levels, for a log that does not record it.",
)
@json_option
@click.pass_context
def query_command(context: click.Context, /, as_json: bool, **given: Any) -> None:
    """What was sent where, from the log in DIRECTORY alone. The log may be in use.

    \b
      conductor audit query var/audit --label pii --remote --from 2026-07-01 --to 2026-10-01

    answers: which remote destinations received anything labelled pii in that quarter? The log is
    proven first; the last lines say whether the answer is complete.

    \b
    Exit codes:
      0  answered, and the answer is complete
      1  the log does not verify, or something may be missing
      2  there is no log, or it cannot be read

    With --json: one JSON object a sending, then one with totals and what is proven.
    """
    levels = given.pop("levels")
    try:
        stretch = opened_stretch(given)
        answer = Answer(stretch, Question(**given), levels)
        for found in answer.rows():
            click.echo(json.dumps(found.as_json()) if as_json else _row(found))
    except (AuditError, ConfigError) as error:
        click.echo(str(error), err=True)
        context.exit(EXIT_NO_LOG)
    click.echo(json.dumps(_summary(answer)) if as_json else "\n".join(_told(answer)))
    context.exit(0 if answer.coverage.complete else EXIT_INCOMPLETE)


def _row(found: Found) -> str:
    sent = found.sending
    size = f"{sent.bytes_out} bytes" if sent.bytes_out is not None else "-"
    by = f" before {', '.join(sent.obligations)}" if sent.obligations else ""
    lowered = f" (was {sent.label_before}{by})" if sent.label_before != sent.label else ""
    parts = (
        sent.ts,
        f"{sent.where:6}",
        sent.destination,
        f"{sent.label}{lowered}",
        f"rule {sent.rule or '-'}",
        f"key {sent.key or '-'}",
        size,
        ",".join(sent.attempts) or "no end recorded",
        f"{sent.request_id}/{sent.step if sent.step is not None else '-'}",
    )
    return "  ".join(parts) + ("" if found.certain else "  ?")


def _told(answer: Answer) -> list[str]:
    lines = [
        f"{where:6}    {destination}: {_totals(where, totals)}"
        for (where, destination), totals in sorted(answer.destinations.items(), reverse=True)
    ]
    lines = ["", *lines] if lines else ["nothing was found"]
    if answer.lowered:
        lines.append(f"lowered   {answer.lowered} more carried it until a declassifier lowered it "
                     "(show them with --lowered)")  # fmt: skip
    return [*lines, *completeness(answer.coverage)]


def _totals(where: str, totals: Totals) -> str:
    """Of what stayed inside no sizes are recorded."""
    many = "" if totals.sendings == 1 else "s"
    size = f" {totals.bytes_out} bytes," if where == "remote" else ""
    return f"{totals.sendings} sending{many},{size} {totals.first_ts} to {totals.last_ts}"


def _summary(answer: Answer) -> dict[str, Any]:
    return {
        "destinations": [
            {"where": where, "destination": destination, **vars(totals)}
            for (where, destination), totals in sorted(answer.destinations.items())
        ],
        "lowered": answer.lowered,
        "coverage": answer.coverage.as_json(),
    }
