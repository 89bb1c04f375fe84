"""`conductor serve`: API, policy and dispatch. Cannot import what dials out or runs models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import click

from conductor.cli.options import config_option

BARRED = frozenset({"litellm", "torch", "xllamacpp", "onnxruntime", "tokenizers", "numpy"})


class Bar(MetaPathFinder):
    """Makes packages unimportable in this process: what opens vendor sockets, or runs models."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._names:
            raise ImportError(f"{fullname} may not be imported in conductor serve")
        return None


@click.command()
@config_option
def serve(config: Path) -> None:
    """Serve the API in the foreground. The other processes are started apart: see `conductor up`.

    Stops on SIGTERM or SIGINT after running requests have ended, within api.drain_s.
    """
    sys.meta_path.insert(0, Bar(BARRED))
    import structlog
    import uvloop

    from conductor.activation.startup import starting
    from conductor.api.server import serve as run
    from conductor.logs import configure
    from conductor.process.manager import inherited
    from conductor.process.openfiles import lift_limit

    lift_limit()
    start = starting(config)
    log = start.site.appliance.log
    configure(log.format, log.level)
    if start.degraded:
        structlog.get_logger().error("policy_degraded", reason=start.degraded)
    if start.candidate_differs:
        structlog.get_logger().warning(
            "policy_file_not_in_force", do="conductor policy apply, or leave the file as it was"
        )
    uvloop.run(run(start.site, start.degraded, inherited()))
