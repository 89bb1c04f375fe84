"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SHIPPED = Path("configs")


def config_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--config DIR`: where appliance.yaml, workers.yaml and policy.yaml stand."""
    return click.option(
        "--config",
        "config",
        type=click.Path(path_type=Path, file_okay=False),
        default=SHIPPED,
        show_default=True,
        envvar="CONDUCTOR_CONFIG",
        help="Directory with appliance.yaml, workers.yaml and policy.yaml.",
    )(function)


def socket_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--socket PATH`, given on as `socket_path`; `default` says in words where it is otherwise."""
    return click.option(
        "--socket",
        "socket_path",
        type=click.Path(path_type=Path),
        help=f"Unix socket to serve on.  [default: {default}]",
    )


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`: machine-readable output."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def root_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--root DIR`: an installation below another directory than `/`."""
    return click.option(
        "--root",
        "root",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("/"),
        show_default=True,
        help="An installation below this directory; nothing that runs is asked or told.",
    )(function)
