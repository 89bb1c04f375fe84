"""Which files of an installation others than root may change, and which secrets they may read.

Only what the services must write belongs to them: their state, and what the API publishes. Model
files do not: who can change one can make it answer anything. Copies made by upgrades hold keys.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from conductor.box.facts import Exposed
from conductor.box.place import Place

CREDENTIALS = "credentials"
SEALED = "sealed"
"""Below it: encrypted, so that reading such a file gives nothing away."""
MODELS = "/var/lib/conductor-models"
BACKUPS = "/var/lib/conductor-backups"
_ROOT_GROUP = 0


def exposed(place: Place, state: Path | None = None) -> tuple[Exposed, ...]:
    """Everything that is wrong; empty when nothing is. What cannot be looked at is left out."""
    owners = place.trusted_owners
    found = [one for top in _tops(place) for one in _below(place, top, owners)]
    found += _secrets(place, place.config / CREDENTIALS)
    found += _secrets(place, place.at(BACKUPS))
    if state is not None and (mode := _mode(state)) is not None and mode & 0o077:
        found.append(Exposed(place.named(state), "readable"))
    return tuple(found)


def _tops(place: Place) -> Iterator[Path]:
    yield place.versions
    yield place.at("/usr/share/conductor")
    yield place.config
    yield place.at(MODELS)
    yield place.at(BACKUPS)
    for folder in (place.shipped_units, place.overrides):
        yield from sorted(folder.glob("conductor*"))


def _below(place: Place, top: Path, owners: frozenset[int]) -> Iterator[Exposed]:
    if os.path.lexists(top):
        yield from _judged(place, top, owners)
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            yield from _judged(place, Path(folder) / name, owners)


def _judged(place: Place, path: Path, owners: frozenset[int]) -> Iterator[Exposed]:
    try:
        seen = path.lstat()
    except OSError:
        return
    if seen.st_uid not in owners:
        yield Exposed(place.named(path), "owner")
    elif stat.S_ISLNK(seen.st_mode):
        return
    elif seen.st_mode & stat.S_IWOTH:
        yield Exposed(place.named(path), "world")
    elif seen.st_mode & stat.S_IWGRP and seen.st_gid != _ROOT_GROUP:
        yield Exposed(place.named(path), "group")


def _secrets(place: Place, folder: Path) -> Iterator[Exposed]:
    for top, folders, files in os.walk(folder):
        for name in (*folders, *(files if Path(top).name != SEALED else ())):
            path = Path(top) / name
            if (mode := _mode(path)) is not None and mode & 0o077:
                yield Exposed(place.named(path), "readable")


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
