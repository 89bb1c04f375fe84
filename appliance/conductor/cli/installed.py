"""The configuration of an installation, for verbs that look at it from outside the services."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from conductor.box.place import Place
from conductor.errors import ConfigError
from conductor.settings import Paths

if TYPE_CHECKING:
    from conductor.config import Site


@dataclass(frozen=True)
class Installed:
    """`site` is None where the files cannot be used; `faults` say why. Its paths are those by which
    we reach them from here."""

    place: Place
    directory: Path
    site: Site | None
    faults: tuple[str, ...] = ()

    def at(self, path: Path) -> Path:
        """Where an absolute path of the running machine stands."""
        return self.place.at(path) if path.is_absolute() else path


def installed(place: Place, config: Path | None = None) -> Installed:
    """Read the configuration in `config`, or where the package has it. Never raises."""
    from conductor.activation.startup import starting
    from conductor.config import load

    directory = config or place.config
    try:
        if place.root == Path("/"):
            return Installed(place, directory, starting(directory).site)
        return Installed(place, directory, _rebased(place, load(directory)))
    except ConfigError as error:
        return Installed(place, directory, None, tuple(str(fault) for fault in error.faults))


def _rebased(place: Place, site: Site) -> Site:
    """The site with its directories as they stand below another root."""
    paths = site.appliance.paths
    moved = {field.name: place.at(getattr(paths, field.name).absolute()) for field in fields(paths)}
    return replace(site, appliance=replace(site.appliance, paths=Paths(**moved)))


def latest(directory: Path, event: str) -> dict[str, Any] | None:
    """The newest record of that event in an audit log; None when there is none to be read."""
    from conductor.audit.segments import segments

    needle = b'"event":"%s"' % event.encode()
    try:
        for path in reversed(segments(directory)):
            found: dict[str, Any] | None = None
            for line in _lines(path):
                if needle in line and (record := orjson.loads(line))["event"] == event:
                    found = record
            if found is not None:
                return found
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return None


def _lines(path: Path) -> Iterator[bytes]:
    """Of a segment. Its folder is a service's, and we are root: whatever stands there by that name
    must neither hold us up nor fill the memory. Raises `OSError`."""
    from conductor.audit.record import MAX_RECORD_BYTES

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while line := file.readline(2 * MAX_RECORD_BYTES):
                yield line
