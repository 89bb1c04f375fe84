"""`conductor upgrade, rollback`: another version in force, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from conductor.cli.backup import box_at, root_option

if TYPE_CHECKING:
    from conductor.upgrade.layout import Box
    from conductor.upgrade.steps import Change

wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=1),
    default=90.0,
    show_default=True,
    help="Seconds until it must be ready.",
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--key",
    "keys",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Public key of who may sign.  [default: those in /etc/conductor/release-keys]",
)
@wait_option
@root_option
def upgrade(file: Path, keys: tuple[Path, ...], wait_s: float, root: Path) -> None:
    """Put the version of the release FILE in force.

    Nothing is fetched. The signature is checked, the version unpacked beside the present one and
    tested; then requests end, configuration and state are copied, and it takes over. When it is not
    ready in time the present version comes back by itself.
    """
    from conductor.process.keyfiles import load_public
    from conductor.upgrade.steps import upgrade as run

    box = box_at(root)
    files = keys or tuple(sorted(box.release_keys.glob("*.pub")))
    trusted = [load_public(key, "release") for key in files]
    click.echo(f"version {run(_change(box, wait_s), file, trusted).name} is in force")


@click.command()
@click.option("--with-state", is_flag=True, help="Also put back configuration and state.")
@wait_option
@root_option
def rollback(with_state: bool, wait_s: float, root: Path) -> None:
    """Put the version before the last upgrade in force again.

    Configuration and state stay, unless that version cannot read them; then those of the time of
    the upgrade are put back. What is there now is copied first, so nothing is lost.
    """
    from conductor.upgrade.steps import rollback as run

    version = run(_change(box_at(root), wait_s), with_state=with_state)
    click.echo(f"version {version.name} is in force")


def _change(box: Box, wait_s: float) -> Change:
    from conductor.upgrade.manager import Systemd
    from conductor.upgrade.steps import Change

    return Change(box, Systemd(box), lambda line: click.echo(f"  {line}"), wait_s)
