"""The `conductor-build` command. Every verb has a file of its own: `*_cli.py`."""

from __future__ import annotations

import sys

import click

from conductor import __version__
from conductor.errors import ConductorError
from conductor_build.bundle_cli import bundle
from conductor_build.compile.command import compile_
from conductor_build.crossvalidate_cli import crossvalidate
from conductor_build.evaluate_cli import evaluate
from conductor_build.export_cli import export
from conductor_build.outcomes_cli import outcomes
from conductor_build.probe_cli import probe
from conductor_build.train_cli import train
from conductor_build.verify.command import verify


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="conductor-build")
def conductor_build() -> None:
    """Builds conductors: from recorded outcomes to a trained, judged and signed bundle.

    Training needs more than the appliance: `make train-set`.
    """


conductor_build.add_command(outcomes)
conductor_build.add_command(probe)
conductor_build.add_command(bundle)
conductor_build.add_command(evaluate)
conductor_build.add_command(crossvalidate)
conductor_build.add_command(train)
conductor_build.add_command(export)
conductor_build.add_command(compile_)
conductor_build.add_command(verify)


def main() -> None:
    """Entry point: errors of ours end as one message, never as a traceback."""
    try:
        conductor_build.main(standalone_mode=True)
    except ConductorError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
