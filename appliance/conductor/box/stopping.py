"""Whether systemd leaves a service the time that it is configured to take for its last requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from conductor.box.facts import Drain
from conductor.box.place import Place

UNITS = ("conductor.service", "conductor-egress.service")
"""Those that let running requests end."""
_LIMIT = re.compile(r"^TimeoutStopSec\s*=\s*(?:(\d+)\s*min)?\s*(?:(\d+)\s*s?)?\s*$", re.MULTILINE)


def drains(place: Place, drain_s: float) -> tuple[Drain, ...]:
    """Of the units that are installed here. What is written in another form is left out."""
    found = [(unit, _limit_s(place, unit)) for unit in UNITS]
    return tuple(Drain(unit, drain_s, stop_s) for unit, stop_s in found if stop_s is not None)


def _limit_s(place: Place, unit: str) -> float | None:
    """The last one that is set counts: systemd.unit(5)."""
    limits = [
        60.0 * int(minutes or 0) + int(seconds or 0)
        for path in _files(place, unit)
        for minutes, seconds in _LIMIT.findall(_text(path))
    ]
    return limits[-1] if limits else None


def _files(place: Place, unit: str) -> Iterator[Path]:
    yield place.shipped_units / unit
    yield from sorted((place.overrides / f"{unit}.d").glob("*.conf"))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
