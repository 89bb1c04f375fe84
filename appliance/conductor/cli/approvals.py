"""`conductor approvals`: data that may go once a person has read exactly what would be sent."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import click
import orjson

from conductor.cli.options import config_option, json_option

_KEY = click.Path(path_type=Path, dir_okay=False, exists=True)
_COLUMNS = ("request", "destination", "label", "declassifier", "sha256")


@click.group()
def approvals() -> None:
    """What waits for a person: list it, read the very bytes, approve them once.

    A policy asks for this with the obligation {approve: {by: ID}}. The client is told an id, and
    sends its request again once it is approved.
    """


@approvals.command("list")
@config_option
@json_option
def listed(config: Path, as_json: bool) -> None:
    """What waits, oldest first: names, labels and hashes."""
    waiting = _asked(config, "GET", "/v1/approvals")["data"]
    if as_json:
        click.echo(orjson.dumps(waiting, option=orjson.OPT_INDENT_2))
        return
    if not waiting:
        click.echo("nothing waits for approval")
    for one in waiting:
        click.echo("  ".join(f"{name} {one[name][:16]}" for name in _COLUMNS))


@approvals.command()
@click.argument("request_id")
@config_option
def show(request_id: str, config: Path) -> None:
    """Print exactly what would be sent for REQUEST_ID. It may be sensitive: that is the point."""
    click.echo(_body(_asked(config, "GET", f"/v1/approvals/{request_id}")))


@approvals.command()
@click.argument("request_id")
@config_option
@click.option("--key", "key_file", type=_KEY, required=True, help="The approver's private key.")
@click.option("--as", "approver", required=True, help="The approver's id in policy.yaml.")
@click.option("--yes", is_flag=True, help="Do not show the bytes and ask first.")
def approve(request_id: str, config: Path, key_file: Path, approver: str, yes: bool) -> None:
    """Approve REQUEST_ID: these bytes, to that destination, once, until it expires."""
    from conductor.cli.policychange import PURPOSE
    from conductor.declassify.approved import Approval, mint
    from conductor.process import keyfiles

    found = _asked(config, "GET", f"/v1/approvals/{request_id}")
    body = _body(found)
    if not yes:
        click.echo(body)
        click.confirm(
            f"Send this, labelled {found['label']}, to {found['destination']}?", abort=True
        )
    approval = Approval(**{name: found[name] for name in Approval.__dataclass_fields__})
    token = mint(keyfiles.load_private(key_file, PURPOSE), approver, approval, body)
    _asked(config, "POST", "/v1/approvals", {"token": token})
    click.echo(f"approved {request_id}: the next such request may send it, once")


def _body(found: dict[str, Any]) -> bytes:
    return b64decode(found["body_base64"])


def _asked(config: Path, method: str, path: str, body: object | None = None) -> dict[str, Any]:
    from conductor.activation.adminclient import ask
    from conductor.activation.sites import APPLIANCE, paths_of, read_files

    return ask(paths_of(config, read_files(config, APPLIANCE)[APPLIANCE]).run, method, path, body)
