"""What the verbs of `conductor policy` share: options, arguments, the sites that they mean."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

if TYPE_CHECKING:
    from conductor.config import Site
    from conductor.settings import Paths

FILE = click.Path(path_type=Path, dir_okay=False)
PURPOSE = "approver"
"""Of an approver's key, in messages and file names."""

_SINCE = re.compile(r"([0-9]{1,4})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
    return click.argument("file", required=False, type=FILE)(function)


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


def paths_in(config: Path) -> Paths:
    """Where the state of the site in `config` stands. Raises `ConfigError`."""
    from conductor.activation.sites import APPLIANCE, paths_of, read_files

    return paths_of(config, read_files(config, APPLIANCE)[APPLIANCE])
