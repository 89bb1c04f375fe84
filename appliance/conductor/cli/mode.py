"""`conductor mode`: whether this machine may have a way out at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import click
import orjson

from conductor.box.airgap import AIR_GAPPED, CONNECTED, Marker, Switch, read_marker
from conductor.box.command import run
from conductor.box.modeswitch import lacking, refresh, switch
from conductor.box.place import Place
from conductor.cli.installed import installed
from conductor.cli.options import json_option, root_option
from conductor.errors import StartError

MODES = click.Choice([AIR_GAPPED, CONNECTED])
_NO_LOGIN = 2**32 - 1


@click.command()
@click.argument(
    "wanted", metavar="[MODE]", required=False, type=click.Choice([AIR_GAPPED, CONNECTED])
)
@click.option("--refresh", "renew", is_flag=True, hidden=True)
@root_option
@json_option
def mode(wanted: str | None, root: Path, *, renew: bool, as_json: bool) -> None:
    """Show the mode of this machine, or switch it to air-gapped or connected.

    \b
    air-gapped  egress is masked, the services lose every socket family but Unix, the firewall gets
                rules of ours; remote workers are set aside, whatever appliance.yaml says
    connected   the above is undone; appliance.yaml and policy.yaml decide what may leave

    Switching needs root and starts the services anew; the audit log gets a record. Killed half way,
    the machine counts as air-gapped, and the same command finishes it. Exit 1 when something that
    runs could not be told.
    """
    place = Place(root.absolute())
    if renew:  # for the package's own scripts, after another version was put in force
        refresh(place)
        return
    said = _switch(place, cast(Switch, wanted)) if wanted is not None else []
    facts = shown(place)
    click.echo(orjson.dumps(facts) if as_json else _in_words(facts))
    if said and place.running:
        raise SystemExit(1)


def _switch(place: Place, wanted: Switch) -> list[str]:
    if place.running and os.geteuid() != 0:
        raise StartError("switching the mode takes root: sudo conductor mode " + wanted)
    try:
        said = switch(place, wanted, run, _now(), who_asks(os.environ))
    except OSError as error:
        raise StartError(
            f"{error.filename or 'a file'} cannot be written ({error.strerror}): run the command "
            "again; until it is through, the machine counts as air-gapped"
        ) from None
    for line in said:
        click.echo(line, err=True)
    return said


def who_asks(environ: Mapping[str, str], process: Path = Path("/proc/self")) -> int:
    """The person behind root: by the login that the kernel remembers, else as sudo says."""
    with suppress(OSError, ValueError):
        login = int((process / "loginuid").read_text("ascii"))
        if login != _NO_LOGIN:
            return login
    said = environ.get("SUDO_UID", "")
    return int(said) if said.isdigit() else os.getuid()


def shown(place: Place) -> dict[str, Any]:
    """The mode and whether everything that belongs to it is in place."""
    marker = read_marker(place.config)
    return {
        "mode": marker.mode if marker.mode != "never" else "as configured",
        "number": marker.number,
        "since": marker.at or None,
        "by_uid": marker.uid if marker.number else None,
        "damaged": marker.damaged,
        "set_aside": _set_aside(place, marker),
        "lacking": lacking(place) if marker.mode == AIR_GAPPED else _left(place, marker),
    }


def _set_aside(place: Place, marker: Marker) -> list[str]:
    """Ids of the remote models that the gap hides; none where the configuration cannot be read."""
    site = installed(place).site if marker.mode == AIR_GAPPED else None
    return list(site.set_aside) if site else []


def _left(place: Place, marker: Marker) -> list[str]:
    """What the air gap has left behind: the variable in it would still close the services."""
    return [str(path) for path in place.overrides.glob("conductor*.d/50-air-gapped.conf")]


def _in_words(facts: dict[str, Any]) -> str:
    lines = [f"mode: {facts['mode']}"]
    if facts["since"]:
        lines[0] += f", since {facts['since']}, by user id {facts['by_uid']}"
    if facts["damaged"]:
        lines.append("mode.json is damaged or cannot be read, and so counts as air-gapped")
    if facts["set_aside"]:
        lines.append(f"remote models that it hides: {', '.join(facts['set_aside'])}")
    lines += [f"not as it should be: {path}" for path in facts["lacking"]]
    if facts["lacking"] and facts["mode"] != "as configured":
        lines.append(f"run 'conductor mode {facts['mode']}' to put it right")
    return "\n".join(lines)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
