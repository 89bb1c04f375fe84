"""`conductor audit head | rotate-key | retain`: keeping the audit log, and keeping it provable."""

from __future__ import annotations

from pathlib import Path

import click

from conductor.audit import anchor, keys, upkeep
from conductor.audit.retention import RETENTION_DAYS
from conductor.cli.auditoptions import directory_argument
from conductor.process import keyfiles
from conductor.process.asowner import become_owner

keys_option = click.option(
    "--keys",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder with audit.key.",
)


@click.command("head")
@directory_argument
def head_command(directory: Path) -> None:
    """Print the newest signed checkpoint of the log in DIRECTORY, to be kept elsewhere.

    Give it back later as `conductor audit verify --anchor FILE`: whoever holds this machine and its
    key can write the log anew, but cannot change what you kept.
    """
    click.echo(anchor.latest(directory), nl=False)


@click.command("rotate-key")
@directory_argument
@keys_option
def rotate_command(directory: Path, folder: Path) -> None:
    """Hand the log in DIRECTORY over to a new key. The appliance must not be running."""
    become_owner(directory)
    key = upkeep.rotate(directory, folder)
    click.echo(f"the log is sealed with {keyfiles.fingerprint(key.public)} from now on")
    click.echo("Give the new audit.pub to whoever verifies; checkpoints kept so far stay good.")


@click.command("retain")
@directory_argument
@keys_option
@click.option(
    "--days",
    type=click.IntRange(1),
    default=RETENTION_DAYS,
    show_default=True,
    help="Remove what was closed longer ago than this.",
)
def retain_command(directory: Path, folder: Path, days: int) -> None:
    """Remove expired segments of the log in DIRECTORY; what is left stays provable.

    The appliance must not be running; it does the same by itself. A file named legal-hold in
    DIRECTORY keeps everything.
    """
    become_owner(directory)
    removed = upkeep.retain_now(directory, keys.load(folder), days)
    for one in removed:
        click.echo(f"removed {one.path.name}: records {one.first_seq} to {one.last_seq}")
    if not removed:
        click.echo("nothing has expired")
