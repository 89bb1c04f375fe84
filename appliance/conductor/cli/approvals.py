"""`conductor approvals`: data that may go once a person has read exactly what would be sent."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import click
import orjson

from conductor.cli.options import config_option, json_option

_KEY = click.Path(path_type=Path, dir_okay=False, exists=True)
_COLUMNS = ("request", "destination", "label", "declassifier")


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
    """List what waits, the oldest first.

    Names and labels; with --json the SHA-256 of what would be sent, too.
    """
    waiting = _asked(config, "GET", "/v1/approvals")["data"]
    if as_json:
        click.echo(orjson.dumps(waiting, option=orjson.OPT_INDENT_2))
        return
    if not waiting:
        click.echo("nothing waits for approval")
    for one in waiting:
        click.echo("  ".join(f"{name} {one[name]}" for name in _COLUMNS))


@approvals.command()
@click.argument("request_id")
@config_option
def show(request_id: str, config: Path) -> None:
    """Print what would be sent for REQUEST_ID.

    It may be sensitive: that is the point. To a file or a pipe go the exact bytes; on a terminal
    they are set out to be read, with what is invisible written as \\uXXXX.
    """
    body = _body(_asked(config, "GET", f"/v1/approvals/{request_id}"))
    click.echo(readable(body) if sys.stdout.isatty() else body)


@approvals.command()
@click.argument("request_id")
@config_option
@click.option("--key", "key_file", type=_KEY, required=True, help="The approver's private key.")
@click.option("--as", "approver", required=True, help="The approver's id in policy.yaml.")
@click.option("--yes", is_flag=True, help="Do not show the bytes and ask first.")
def approve(request_id: str, config: Path, key_file: Path, approver: str, yes: bool) -> None:
    """Approve what waits as REQUEST_ID.

    That is: these bytes, to that destination, once, until it expires.
    """
    from conductor.cli.policyoptions import PURPOSE
    from conductor.declassify.approved import Approval, mint
    from conductor.process import keyfiles

    found = _asked(config, "GET", f"/v1/approvals/{request_id}")
    body = _body(found)
    if not yes:
        click.echo(readable(body))
        click.confirm(
            f"Send this, labelled {found['label']}, to {found['destination']}?", abort=True
        )
    approval = Approval(**{name: found[name] for name in Approval.__dataclass_fields__})
    token = mint(keyfiles.load_private(key_file, PURPOSE), approver, approval, body)
    _asked(config, "POST", "/v1/approvals", {"token": token})
    click.echo(f"approved {request_id}: the next such request may send it, once")


def readable(body: bytes) -> str:
    """A body in JSON for a person's eyes: indented, and nothing in it that a terminal would obey
    or hide. Whoever wrote it may want the reader to see something else."""
    text = orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2).decode()
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    """As JSON may write it as well; above U+FFFF in two halves."""
    return json.dumps(character)[1:-1]


def _body(found: dict[str, Any]) -> bytes:
    return b64decode(found["body_base64"])


def _asked(config: Path, method: str, path: str, body: object | None = None) -> dict[str, Any]:
    from conductor.activation.adminclient import ask
    from conductor.activation.sites import APPLIANCE, paths_of, read_files

    return ask(paths_of(config, read_files(config, APPLIANCE)[APPLIANCE]).run, method, path, body)
