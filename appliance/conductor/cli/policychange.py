"""`conductor policy apply, rollback`: the only verbs that change what is in force."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.cli.options import config_option, json_option
from conductor.cli.policyapprove import beside
from conductor.cli.policyoptions import FILE, file_argument, paths_in, put

if TYPE_CHECKING:
    from conductor.activation.approvals import Approval

offline_option = click.option(
    "--offline",
    is_flag=True,
    help="The appliance is down: change what it will start with. Refused while it runs.",
)


@click.command()
@file_argument
@config_option
@click.option("--approvals", "approvals_file", type=FILE, help="[default: FILE.approvals.json]")
@click.option("--emergency", is_flag=True, help="One approver is enough; it may only tighten.")
@offline_option
@json_option
def apply(
    file: Path | None,
    config: Path,
    approvals_file: Path | None,
    emergency: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Put FILE in force and print the verdict.

    The running appliance checks it: syntax, lint, the file's own tests, its revision, approvals.
    Requests that begin afterwards are judged by it; a refused one changes nothing, now or at the
    next start. Exit 1 when it is refused.
    """
    from conductor.config import POLICY

    path = file or config / POLICY
    text = _read(path)
    signed = _approvals(path, approvals_file)
    if offline:
        facts = _offline(config, lambda desk, who: desk.apply(_wish(text, signed, emergency), who))
    else:
        asked = {
            "policy": _decoded(text, path),
            "approvals": [approval.facts() for approval in signed],
            "emergency": emergency,
        }
        facts = _ask(config, "POST", "/v1/policy", asked)
    _verdict(_placed(facts, path), as_json)


@click.command()
@click.argument("revision", required=False, type=click.IntRange(min=1))
@config_option
@click.option("--out", type=FILE, help="Only write the file that would be applied: to approve it.")
@offline_option
@json_option
def rollback(
    revision: int | None, config: Path, out: Path | None, offline: bool, as_json: bool
) -> None:
    """Put an earlier policy in force again.

    That of REVISION, by default the one before. Revisions only grow: the old content comes back
    under the next number. Where that needs approvals, write it with --out, have it approved, and
    apply it.
    """
    if out is not None:
        from conductor.activation.desk import reissued
        from conductor.activation.store import Store

        out.write_bytes(reissued(Store(paths_in(config).published), revision))
        click.echo(f"{out}: to be approved and applied", err=True)
        return
    if offline:
        facts = _offline(config, lambda desk, who: desk.rollback(revision, who))
    else:
        facts = _ask(config, "POST", "/v1/policy/rollback", {"revision": revision})
    _verdict(facts, as_json)


def _approvals(path: Path, given: Path | None) -> tuple[Approval, ...]:
    from conductor.activation.approvals import read_approvals

    target = given or beside(path)
    if given is None and not target.is_file():
        return ()
    return read_approvals(_read(target), str(target))


def _read(path: Path) -> bytes:
    from conductor.strictyaml.source import MAX_BYTES

    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None


def _decoded(data: bytes, path: Path) -> str:
    """For JSON. Raises `ConfigError` for what is no UTF-8: other bytes than those of the file must
    not be what is checked."""
    from conductor.strictyaml.faults import Faults
    from conductor.strictyaml.source import parse

    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        faults = Faults()
        parse(data, str(path), faults)
        faults.raise_any()
        raise


def _ask(config: Path, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    from conductor.activation.adminclient import DaemonDown, ask

    try:
        return ask(paths_in(config).run, method, path, body)
    except DaemonDown as error:
        message = f"{error}, or use --offline to change what it will start with"
        raise DaemonDown(message) from None


def _placed(facts: dict[str, Any], path: Path) -> dict[str, Any]:
    """The verdict with positions in the file that was typed: the appliance was sent its bytes."""
    from conductor.config import POLICY

    for one in (*facts["problems"], *facts["warnings"]):
        if one["where"].startswith(f"{POLICY}:"):
            one["where"] = f"{path}{one['where'].removeprefix(POLICY)}"
    return facts


def _wish(text: bytes, signed: tuple[Approval, ...], emergency: bool) -> Any:
    from conductor.activation.desk import Wish

    return Wish(text, signed, emergency)


def _offline(config: Path, act: Any) -> dict[str, Any]:
    """Let a desk of our own act, while no appliance runs."""
    import asyncio

    from conductor.activation.offline import at_desk
    from conductor.logs import configure

    configure("console", "error")  # to standard error: the verdict tells the rest
    return asyncio.run(at_desk(config, act)).facts()


def _verdict(facts: dict[str, Any], as_json: bool) -> None:
    from conductor.cli.policyshown import show_verdict

    put(facts) if as_json else show_verdict(facts)
    sys.exit(0 if facts["verdict"] == "active" else 1)
