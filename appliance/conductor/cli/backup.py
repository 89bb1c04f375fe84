"""`conductor backup, restore`: configuration and state in one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.errors import UpgradeError

if TYPE_CHECKING:
    from conductor.upgrade.layout import Box


def root_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--root DIR`: a folder that stands for the machine."""
    return click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("/"),
        hidden=True,
    )(function)


def box_at(root: Path) -> Box:
    """The box. Raises `UpgradeError` for who may not change it."""
    from conductor.upgrade.layout import Box

    if root == Path("/") and os.geteuid() != 0:
        raise UpgradeError("this changes the machine: run it as root")
    return Box(root)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@root_option
def backup(file: Path, root: Path) -> None:
    """Copy configuration and state to FILE; the appliance may run.

    It holds credentials: keep it as you would keep those. Model files are left out.
    """
    from conductor.upgrade import archive
    from conductor.upgrade.versions import linked

    box = box_at(root)
    version = linked(box.current)
    if version is None:
        raise UpgradeError("no version is installed here, so nothing to copy")
    made = archive.save(box, version, file)
    size = file.stat().st_size >> 10
    click.echo(f"{file}: version {made.version}, {size} KiB, mode 600; it holds credentials")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@root_option
def restore(file: Path, root: Path) -> None:
    """Put configuration and state of FILE in the place of what is there.

    The appliance must be stopped: systemctl stop conductor.target. What is there is copied first.
    """
    from conductor.upgrade.manager import Systemd
    from conductor.upgrade.restoring import restored

    box = box_at(root)
    kept = restored(box, Systemd(box), file)
    if kept is not None:
        click.echo(f"what was there before was copied to {kept}")
    click.echo("restored; now: systemctl start conductor.target")
