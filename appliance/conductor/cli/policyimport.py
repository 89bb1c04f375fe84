"""`conductor policy import-gitleaks`: rules that others wrote, as detectors of a policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click


@click.command("import-gitleaks")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_context
def import_gitleaks(context: click.Context, file: Path) -> None:
    """Print the rules of FILE, a gitleaks configuration, as entries for a policy.

    Put them under `detectors:`; an entry under `classify:` for `custom` says what a finding means.
    Allow lists are left out, so that more is found rather than less. Rules that RE2 cannot run are
    told on standard error. Exit 1 when none could be taken over.
    """
    from conductor.detect.gitleaks import import_rules

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} cannot be read ({type(error).__name__})") from None
    found = import_rules(text, str(file))
    for name, why in found.refused:
        click.echo(f"{name}: {why}", err=True)
    click.echo(f"{len(found.detectors)} taken over, {len(found.refused)} not", err=True)
    if not found.detectors:
        context.exit(1)
    sys.stdout.write("detectors:\n" + "".join(map(entry, found.detectors)))


def entry(detector: Mapping[str, Any]) -> str:
    """One detector in the YAML of a policy."""
    return "".join(_lines(detector))


def _lines(detector: Mapping[str, Any]) -> Iterator[str]:
    mark = "  - "
    for key, value in detector.items():
        yield f"{mark}{key}: {_quoted(value) if key == 'pattern' else value}\n"
        mark = "    "


def _quoted(text: str) -> str:
    """A scalar between single quotes, where only these are written otherwise."""
    return "'" + text.replace("'", "''") + "'"
