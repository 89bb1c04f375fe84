"""`conductor policy apply` and what belongs to it: approving, going back, looking at what was."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.cli.options import config_option, json_option
from conductor.cli.policy import file_argument, policy, put, site_with

if TYPE_CHECKING:
    from conductor.activation.approvals import Approval
    from conductor.settings import Paths

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
PURPOSE = "approver"
"""Of an approver's key, in messages and file names."""

offline_option = click.option(
    "--offline",
    is_flag=True,
    help="The appliance is down: change what it will start with. Refused while it runs.",
)


@policy.command()
@file_argument
@config_option
@click.option("--approvals", "approvals_file", type=_FILE, help="[default: FILE.approvals.json]")
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
    """Put FILE in force and print the verdict; exit 1 when it is refused.

    The running appliance checks it: syntax, lint, the file's own tests, its revision, approvals.
    Requests that begin afterwards are judged by it; a refused one changes nothing, now or at the
    next start.
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
    _verdict(facts, as_json)


@policy.command()
@click.argument("revision", required=False, type=click.IntRange(min=1))
@config_option
@click.option("--out", type=_FILE, help="Only write the file that would be applied: to approve it.")
@offline_option
@json_option
def rollback(
    revision: int | None, config: Path, out: Path | None, offline: bool, as_json: bool
) -> None:
    """Put what stood in REVISION in force again, by default the policy before.

    Revisions only grow: the old content comes back under the next number. Where that needs
    approvals, write it with --out, have it approved, and apply it.
    """
    if out is not None:
        from conductor.activation.desk import reissued
        from conductor.activation.store import Store

        out.write_bytes(reissued(Store(_paths(config).state), revision))
        click.echo(f"{out}: to be approved and applied", err=True)
        return
    if offline:
        facts = _offline(config, lambda desk, who: desk.rollback(revision, who))
    else:
        facts = _ask(config, "POST", "/v1/policy/rollback", {"revision": revision})
    _verdict(facts, as_json)


@policy.command()
@config_option
@json_option
def history(config: Path, as_json: bool) -> None:
    """Every policy that was in force here, the newest first: when, how, approved by whom."""
    from conductor.activation.store import Store
    from conductor.cli.policyshown import show_history

    copies = [copy.facts() for copy in Store(_paths(config).state).history()]
    put({"object": "list", "data": copies}) if as_json else show_history(copies)


@policy.command()
@config_option
@json_option
def status(config: Path, as_json: bool) -> None:
    """What is in force; exit 1 when nothing is, or the appliance is degraded."""
    from conductor.activation.adminclient import DaemonDown, ask
    from conductor.activation.store import Store
    from conductor.cli.policyshown import show_status

    paths = _paths(config)
    try:
        facts = {"running": True, **ask(paths.run, "GET", "/v1/policy")}
    except DaemonDown:
        held = Store(paths.state).held()
        kept = held.copy.facts() if held.copy else None
        facts = {"running": False, "in_force": None, "kept": kept, "store": held.condition,
                 "highest_revision": held.highest, "degraded": None, "last": None}  # fmt: skip
    put(facts) if as_json else show_status(facts)
    sys.exit(1 if facts["degraded"] or facts["store"] not in ("active", "empty") else 0)


@policy.command()
@click.argument("directory", type=_FOLDER)
@click.option("--name", default="approver", show_default=True, help="Of the files, and the id.")
def keygen(directory: Path, name: str) -> None:
    """Make an approver's key pair in DIRECTORY: NAME.key stays with its owner, off this machine.

    Prints the entry for `approvers:` in policy.yaml.
    """
    import base64

    from conductor.process.keyfiles import fingerprint, generate

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = generate(directory / f"{name}.key", directory / f"{name}.pub", PURPOSE)
    public = base64.b64encode(key.public_bytes_raw()).decode("ascii")
    click.echo(f'  - {{id: {name}, public_key: "{public}"}}')
    click.echo(f"fingerprint {fingerprint(key)}", err=True)


@policy.command()
@file_argument
@config_option
@click.option("--key", "key_file", type=_FILE, required=True, help="Your private key.")
def approve(file: Path | None, config: Path, key_file: Path) -> None:
    """Sign FILE as it is, with its revision, into FILE.approvals.json beside the signatures there.

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
    target = _beside(path)
    others = [one for one in _still_valid(target, sha256) if one.key != signed.key]
    target.write_bytes(approvals.written([*others, signed], sha256, revision))
    click.echo(f"{target}: revision {revision} has {len(others) + 1} signatures")


def _beside(path: Path) -> Path:
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


def _approvals(path: Path, given: Path | None) -> tuple[Approval, ...]:
    from conductor.activation.approvals import read_approvals

    target = given or _beside(path)
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


def _paths(config: Path) -> Paths:
    from conductor.activation.sites import APPLIANCE, paths_of, read_files

    return paths_of(config, read_files(config, APPLIANCE)[APPLIANCE])


def _ask(config: Path, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    from conductor.activation.adminclient import ask

    return ask(_paths(config).run, method, path, body)


def _wish(text: bytes, signed: tuple[Approval, ...], emergency: bool) -> Any:
    from conductor.activation.desk import Wish

    return Wish(text, signed, emergency)


def _offline(config: Path, act: Any) -> dict[str, Any]:
    """Let a desk of our own act, while no appliance runs."""
    import asyncio

    from conductor.activation.offline import at_desk
    from conductor.logs import configure

    configure("console", "warning")  # to standard error: the output is the verdict alone
    return asyncio.run(at_desk(config, act)).facts()


def _verdict(facts: dict[str, Any], as_json: bool) -> None:
    from conductor.cli.policyshown import show_verdict

    put(facts) if as_json else show_verdict(facts)
    sys.exit(0 if facts["verdict"] == "active" else 1)
