"""Whether this machine was declared air-gapped, and by what.

Two things say so, and neither belongs to a service's account: the variable that systemd sets by the
drop-ins of `conductor mode air-gapped`, and the file `mode.json` beside the configuration, which
root alone can write. Either is enough, and one that cannot be understood counts as saying so:
forging or damaging one can only close the machine, never open it.

Left out: what follows from it for a site (`config.py`), who writes it (`modeswitch.py`), whether it
is true (`attestation.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import orjson

MARKER = "mode.json"
VARIABLE = "CONDUCTOR_MODE"
AIR_GAPPED: Final = "air-gapped"
CONNECTED: Final = "connected"
_MOST_BYTES = 64 * 1024

Switch = Literal["air-gapped", "connected", "never"]
"""What the file says; `never`: the switch was never touched here."""


@dataclass(frozen=True)
class Marker:
    """The latest change of mode. `number` counts the changes, so that one missing from the audit
    log is missed; `uid` is who asked for it. `files` are those that the change has put in place,
    absolute, as on the running machine. `damaged`: it cannot be understood."""

    mode: Switch = "never"
    number: int = 0
    at: str = ""
    uid: int = -1
    files: tuple[str, ...] = ()
    damaged: bool = False

    def as_json(self) -> bytes:
        """The file's bytes."""
        facts = {
            "mode": self.mode,
            "number": self.number,
            "at": self.at,
            "uid": self.uid,
            "files": list(self.files),
        }
        return orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


@dataclass(frozen=True)
class Declared:
    """What was declared of this machine. `by_unit`: systemd says so to this very process."""

    marker: Marker = Marker()
    by_unit: bool = False

    @property
    def air_gapped(self) -> bool:
        return self.by_unit or self.marker.mode == AIR_GAPPED


UNDECLARED = Declared()


def declared(directory: Path, environ: Mapping[str, str] | None = None) -> Declared:
    """What is declared to this process, whose configuration stands in `directory`. Never raises."""
    said = (os.environ if environ is None else environ).get(VARIABLE, "")
    return Declared(read_marker(directory), by_unit=said not in ("", CONNECTED))


def read_marker(directory: Path) -> Marker:
    """The latest change; one that is damaged or cannot be read says `air-gapped`."""
    try:
        with (directory / MARKER).open("rb") as file:
            return _parsed(orjson.loads(file.read(_MOST_BYTES)))
    except (FileNotFoundError, NotADirectoryError):
        return Marker()
    except (OSError, ValueError, KeyError, TypeError):
        return Marker(AIR_GAPPED, damaged=True)


def _parsed(facts: Any) -> Marker:
    """Raises `ValueError`, `KeyError` or `TypeError` for what is no marker."""
    mode, files = facts["mode"], facts["files"]
    if mode not in (AIR_GAPPED, CONNECTED) or not isinstance(files, list):
        raise ValueError("no mode")
    number, at, uid = int(facts["number"]), str(facts["at"]), int(facts["uid"])
    return Marker(cast(Switch, mode), number, at, uid, tuple(map(str, files)))
