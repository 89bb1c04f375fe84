"""`conductor check`: read the whole configuration and report every fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson

from conductor.cli.options import config_option, json_option


@click.command()
@config_option
@json_option
def check(config: Path, as_json: bool) -> None:
    """Check appliance.yaml, workers.yaml and policy.yaml; exit 1 with every fault's position."""
    from conductor.activation.store import Store
    from conductor.cli.models import missing_models
    from conductor.config import load
    from conductor.errors import ConfigError

    try:
        site = load(config)
    except ConfigError as error:
        faults = [str(fault) for fault in error.faults]
        click.echo(orjson.dumps({"ok": False, "faults": faults}) if as_json else "\n".join(faults))
        raise SystemExit(1) from None
    held = Store(site.appliance.paths.published).held()
    workers = [worker.id for worker in site.workers]
    facts: dict[str, Any] = {
        "ok": True,
        "mode": site.appliance.mode,
        "keys": [key.id for key in site.appliance.keys],
        "workers": workers,
        "planner": site.appliance.planner.engine,
        "missing_models": missing_models(site),
        "policy_revision": site.policy.revision,
        "policy_sha256": site.policy.sha256,
        "policy_in_force": held.copy.sha256 if held.copy else None,
    }
    if as_json:
        click.echo(orjson.dumps(facts))
        return
    click.echo(f"{config}: good, mode {facts['mode']}, policy revision {facts['policy_revision']}")
    click.echo(f"workers: {', '.join(workers)}")
    click.echo(f"planner: {facts['planner']}")
    if facts["policy_in_force"] not in (None, facts["policy_sha256"]):
        click.echo("policy.yaml is not the policy in force: see 'conductor policy status'")
    for name in facts["missing_models"]:
        click.echo(f"not here yet: {name}; run 'conductor models pull {name}'")
