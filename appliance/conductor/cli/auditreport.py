"""`conductor audit report`: a stretch of the log as an auditor reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from conductor.audit.report import collect
from conductor.audit.reportmarkdown import markdown
from conductor.cli.auditoptions import EXIT_INCOMPLETE, EXIT_NO_LOG, opened_stretch, stretch_options
from conductor.errors import AuditError, ConfigError


@click.command("report")
@stretch_options
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to this file.  [default: print it]",
)
@click.pass_context
def report_command(context: click.Context, /, out: Path | None, **where: Any) -> None:
    """A report in Markdown, from the log in DIRECTORY alone: what left, by destination, label and
    rule; what was blocked; who changed the policy; which controls were weakened.

    \b
      conductor audit report var/audit --from 2026-07-01 --to 2026-10-01 --out report.md

    Exit codes are those of `conductor audit query`.
    """
    try:
        found = collect(opened_stretch(where))
        text = markdown(found)
        if out is None:
            click.echo(text, nl=False)
        else:
            out.write_text(text, encoding="utf-8")
    except (AuditError, ConfigError) as error:
        click.echo(str(error), err=True)
        context.exit(EXIT_NO_LOG)
    except OSError as error:
        click.echo(f"the report cannot be written: {error.strerror}", err=True)
        context.exit(EXIT_NO_LOG)
    complete = found.coverage is not None and found.coverage.complete
    context.exit(0 if complete else EXIT_INCOMPLETE)
