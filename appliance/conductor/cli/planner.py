"""`conductor planner`: the plan engine's own process."""

from __future__ import annotations

from pathlib import Path

import click

from conductor.cli.options import config_option, socket_option


@click.command()
@config_option
@socket_option("planner.sock in the run directory")
def planner(config: Path, socket_path: Path | None) -> None:
    """Run the plan engine on a Unix socket. `conductor up` and systemd start it for you."""
    from conductor.activation.startup import starting
    from conductor.logs import configure
    from conductor.planner.server import run_planner

    site = starting(config).site
    configure(site.appliance.log.format, site.appliance.log.level)
    run_planner(
        socket_path or site.appliance.paths.planner_socket,
        site.appliance.planner,
        site.appliance.paths.models,
    )
