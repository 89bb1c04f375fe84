"""`conductor policy keygen, approve`: approvers' keys, and signatures under a candidate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from conductor.cli.options import config_option
from conductor.cli.policyoptions import FILE, PURPOSE, file_argument, site_with

if TYPE_CHECKING:
    from conductor.activation.approvals import Approval

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("directory", type=_FOLDER)
@click.option("--name", default="approver", show_default=True, help="Of the files, and the id.")
def keygen(directory: Path, name: str) -> None:
    """Make an approver's key pair in DIRECTORY.

    NAME.key stays with its owner, off the appliance's machine.

    Prints the entry for `approvers:` in policy.yaml.
    """
    import base64

    from conductor.process.keyfiles import fingerprint, generate

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = generate(directory / f"{name}.key", directory / f"{name}.pub", PURPOSE)
    public = base64.b64encode(key.public_bytes_raw()).decode("ascii")
    click.echo(f'  - {{id: {name}, public_key: "{public}"}}')
    click.echo(f"fingerprint {fingerprint(key)}", err=True)


@click.command()
@file_argument
@config_option
@click.option("--key", "key_file", type=FILE, required=True, help="Your private key.")
def approve(file: Path | None, config: Path, key_file: Path) -> None:
    """Sign FILE, to have it approved.

    The signature is for FILE as it is, with its revision, and goes into FILE.approvals.json beside
    those that are there.

    Look at it first: 'conductor policy diff' tells what it changes. A changed file needs new
    signatures.
    """
    from conductor.activation import approvals
    from conductor.config import POLICY
    from conductor.process.keyfiles import load_private

    path = file or config / POLICY
    site = site_with(config, path)
    sha256, revision = site.policy.sha256, site.policy.revision
    signed = approvals.approve(load_private(key_file, PURPOSE), sha256, revision)
    target = beside(path)
    others = [one for one in _still_valid(target, sha256) if one.key != signed.key]
    target.write_bytes(approvals.written([*others, signed], sha256, revision))
    many = len(others) + 1
    click.echo(f"{target}: revision {revision} has {many} signature{'s' if many > 1 else ''}")


def beside(path: Path) -> Path:
    """Where the signatures under a candidate stand."""
    from conductor.activation.approvals import SUFFIX

    return path.with_name(path.name + SUFFIX)


def _still_valid(target: Path, sha256: str) -> tuple[Approval, ...]:
    """The approvals in a file, if they are for these bytes."""
    import orjson

    from conductor.activation.approvals import read_approvals

    if not target.is_file():
        return ()
    data = target.read_bytes()
    found = read_approvals(data, str(target))
    return found if orjson.loads(data).get("sha256") == sha256 else ()
