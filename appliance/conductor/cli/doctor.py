"""`conductor doctor`: what is wrong with this machine, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
import orjson

from conductor.box.command import run
from conductor.box.finding import Finding, exit_code
from conductor.box.findings import found
from conductor.box.place import Place
from conductor.cli.attest import proof_of, tell
from conductor.cli.doctorfacts import gathered
from conductor.cli.installed import installed
from conductor.cli.options import json_option, root_option

_MARK = {"error": "ERROR  ", "warning": "warning", "info": "info   "}


@click.command()
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="CONDUCTOR_CONFIG",
    help="Directory with appliance.yaml, workers.yaml, policy.yaml.  [default: /etc/conductor]",
)
@click.option("--air-gap", is_flag=True, help="Show the evidence for the air gap, and its limits.")
@click.option(
    "--no-verify", is_flag=True, help="Leave the audit log unread: a long one takes time."
)
@root_option
@json_option
def doctor(
    config: Path | None, root: Path, *, air_gap: bool, no_verify: bool, as_json: bool
) -> None:
    """Look at everything that the appliance needs, and say what is wrong. Changes nothing.

    \b
    Looks at: GPU and driver, disks, memory, clock, sockets, permissions, credentials, certificates,
    mode and air gap, policy, planner's bundle, models, workers, audit log, units, versions, keys.

    \b
    Exit codes: 0 nothing is wrong; 1 warnings; 2 errors. With --air-gap: 0 or 1.
    Run it as root: other accounts cannot see everything.
    """
    here = installed(Place(root.absolute()), config)
    if air_gap:
        tell(proof_of(here, run), as_json=as_json)
    findings = found(gathered(here, verify=not no_verify))
    code = exit_code(findings)
    if as_json:
        body = {"exit_code": code, "findings": [asdict(finding) for finding in findings]}
        click.echo(orjson.dumps(body))
    else:
        click.echo("\n".join(map(_in_words, findings)) or "nothing is wrong")
    raise SystemExit(code)


def _in_words(finding: Finding) -> str:
    return f"{_MARK[finding.severity]} {finding.what}  [{finding.id}]\n        {finding.do}"
