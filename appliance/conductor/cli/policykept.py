"""`conductor policy status, history, show`: what is in force, and what was."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import click

from conductor.cli.options import config_option, json_option
from conductor.cli.policyoptions import paths_in, put


@click.command()
@config_option
@json_option
def history(config: Path, as_json: bool) -> None:
    """List every policy that was in force here.

    The newest first: since when, how, approved by whom.
    """
    from conductor.activation.store import Store
    from conductor.cli.policyshown import show_history

    copies = [copy.facts() for copy in Store(paths_in(config).published).history()]
    put({"object": "list", "data": copies}) if as_json else show_history(copies)


@click.command()
@click.argument("revision", required=False, type=click.IntRange(min=1))
@config_option
def show(revision: int | None, config: Path) -> None:
    """Print the policy that is in force, byte for byte.

    Or that of REVISION, which was: 'conductor policy show > policy.yaml' after a rollback.
    """
    from conductor.activation.store import Store
    from conductor.errors import StartError

    store = Store(paths_in(config).published)
    held = store.held()
    if revision is None and held.copy is None:
        raise StartError(f"no policy is kept that counts ({held.condition})")
    copy = held.copy if revision is None else store.copy(revision)
    click.echo(copy.policy if copy else b"", nl=False)


@click.command()
@config_option
@json_option
def status(config: Path, as_json: bool) -> None:
    """Tell what is in force, and what was refused.

    Exit 1 when what is kept does not count, so that nothing remote is reached.
    """
    from conductor.activation.adminclient import DaemonDown, ask
    from conductor.cli.policyshown import show_status

    paths = paths_in(config)
    try:
        facts = {"running": True, **ask(paths.run, "GET", "/v1/policy")}
    except DaemonDown:
        facts = {"running": False, **_on_disk(paths.published)}
    counts = facts["in_force"] or facts["kept"]
    facts["file_differs"] = counts is not None and counts["sha256"] != _digest(config)
    put(facts) if as_json else show_status(facts)
    sys.exit(1 if facts["degraded"] or facts["store"] not in ("active", "empty") else 0)


def _on_disk(published: Path) -> dict[str, Any]:
    """What the next start would find."""
    from conductor.activation.store import Store

    held = Store(published).held()
    return {
        "in_force": None,
        "kept": held.copy.facts() if held.copy else None,
        "store": held.condition,
        "highest_revision": held.highest,
        "degraded": None,
        "last": None,
    }


def _digest(config: Path) -> str:
    """SHA-256 of policy.yaml, in hex; "" when it cannot be read."""
    from conductor.config import POLICY

    try:
        return hashlib.sha256((config / POLICY).read_bytes()).hexdigest()
    except OSError:
        return ""
