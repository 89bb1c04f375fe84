"""The `conductor` command: one verb a file."""

from __future__ import annotations

import sys

import click

from conductor import __version__
from conductor.cli.approvals import approvals
from conductor.cli.attest import attest
from conductor.cli.audit import audit
from conductor.cli.backup import backup, restore
from conductor.cli.check import check
from conductor.cli.demo import demo
from conductor.cli.doctor import doctor
from conductor.cli.egress import egress
from conductor.cli.mode import mode
from conductor.cli.models import models
from conductor.cli.plan import plan
from conductor.cli.planner import planner
from conductor.cli.policy import policy
from conductor.cli.serve import serve
from conductor.cli.setup import setup
from conductor.cli.up import up
from conductor.cli.upgrade import rollback, upgrade
from conductor.cli.worker import worker
from conductor.errors import ConductorError
from conductor.process.coredumps import forbid_core_dumps
from conductor.process.supervise import stay_with_parent

EXIT_FAILED = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="conductor")
def conductor() -> None:
    """Plans each request over the models that may see it, and enforces where its data may go.

    \b
    Start here:
      conductor up            start everything on this machine, from the files in configs/
      conductor plan "..."    see label, verdicts and plan of a request; nothing is called
      conductor models list   model files: which are here, which can be pulled
      conductor policy lint   check the rules for data; test, explain, diff, replay, apply them
      conductor audit verify  check that the record of decisions is whole; query, report, export it
      conductor setup         first configuration of an installed appliance; then mode, doctor

    Exit codes: 0 done; 1 it failed, and the message says what to do; 2 the command line is wrong.
    """


for command in (
    *(up, serve, planner, egress, worker, demo, plan),
    *(models, policy, approvals, audit, check),
    *(upgrade, rollback, backup, restore),
    *(setup, mode, doctor, attest),
):
    conductor.add_command(command)


def main() -> None:
    """Entry point: errors of ours end as one message on standard error, never as a traceback."""
    stay_with_parent()
    forbid_core_dumps()
    try:
        conductor.main(standalone_mode=True)
    except ConductorError as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_FAILED)
