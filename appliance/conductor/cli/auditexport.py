"""`conductor audit export`: a stretch of the log for another system."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from conductor.audit.export import Export, Format, export_to, manifest_path
from conductor.audit.stretch import Stretch
from conductor.cli.auditoptions import EXIT_INCOMPLETE, EXIT_NO_LOG, opened_stretch, stretch_options
from conductor.errors import AuditError, ConfigError


@click.command("export")
@stretch_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "ocsf", "cef"]),
    required=True,
    help="The records themselves; OCSF 1.6.0 events; CEF lines.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="File to write, or - for standard output. It must not exist.",
)
@click.pass_context
def export_command(context: click.Context, /, form: Any, out: Path, **where: Any) -> None:
    """Export records of the log in DIRECTORY, with a manifest that ties them to its chain.

    \b
      conductor audit export var/audit --format ocsf --from 1d --out events.jsonl

    The manifest stands beside the file, as FILE.manifest.json, and is written last; with --out -
    it is one line on standard error. Exit codes are those of `conductor audit query`.
    """
    try:
        manifest = _exported(opened_stretch(where), form, out)
    except (AuditError, ConfigError) as error:
        click.echo(str(error), err=True)
        context.exit(EXIT_NO_LOG)
    for gap in manifest["gaps"]:
        click.echo(f"GAP: {gap['explanation']}", err=True)
    context.exit(0 if manifest["complete"] else EXIT_INCOMPLETE)


def _exported(stretch: Stretch, form: Format, out: Path) -> dict[str, Any]:
    """Write it, say so, and return its manifest."""
    if str(out) != "-":
        manifest = export_to(stretch, form, out)
        click.echo(f"{manifest['lines']} lines in {out}, manifest in {manifest_path(out)}")
        return manifest
    printed = Export(stretch, form)
    printed.write(sys.stdout.buffer)
    manifest = printed.manifest()
    click.echo(json.dumps(manifest, sort_keys=True), err=True)
    return manifest
