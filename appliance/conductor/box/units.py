"""Whether systemd would run what the package has shipped: changes, replacements, drop-ins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from conductor.box.facts import UnitFacts
from conductor.box.modeswitch import MASKED, pieces
from conductor.box.place import Place

_WEAKENING = re.compile(
    r"^\s*(?:(?:PrivateNetwork|NoNewPrivileges|PrivateUsers|ProtectSystem)\s*="
    r"\s*(?:no|n|false|f|0|off)\b"
    r"|(?:User|NetworkNamespacePath|JoinsNamespaceOf|Exec\w+)\s*="
    r"|(?:CapabilityBoundingSet|AmbientCapabilities)\s*=\s*[^\s]"
    r"|(?:IPAddressDeny|InaccessiblePaths|SystemCallFilter)[ \t]*=[ \t]*$)",
    re.IGNORECASE | re.MULTILINE,
)
"""What no drop-in of an administrator should say. Not complete: `systemd-analyze security` is."""
_OURS = {
    "conductor.socket.d/listen.conf": "",
    "conductor-planner.service.d/gpu.conf": "examples/planner-gpu.conf",
}
"""Drop-ins that `conductor setup` writes, and the shipped file that one of them is a copy of."""
_FOLDERS = (
    *("/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient"),
    *("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system"),
)
"""Whose units and drop-ins count before or beside the shipped ones (systemd.unit(5))."""


def drift(place: Place, *, air_gapped: bool) -> tuple[UnitFacts, ...]:
    """Everything that is not as shipped; empty when the package is not installed here."""
    shipped = place.share / "units"
    names = sorted(path.name for path in shipped.glob("conductor*")) if shipped.is_dir() else []
    found = [one for name in names for one in _installed(place, shipped / name)]
    found += [one for name in names for one in _overridden(place, name, air_gapped=air_gapped)]
    return (*found, *_dropins(place))


def _installed(place: Place, shipped: Path) -> Iterator[UnitFacts]:
    path = place.shipped_units / shipped.name
    data = _bytes(path)
    if data is None:
        yield UnitFacts(place.named(path), "missing")
    elif data != _bytes(shipped):
        yield UnitFacts(place.named(path), "changed")


def _overridden(place: Place, name: str, *, air_gapped: bool) -> Iterator[UnitFacts]:
    for folder in map(place.at, _FOLDERS):
        yield from _instead(place, folder / name, air_gapped=air_gapped)


def _instead(place: Place, path: Path, *, air_gapped: bool) -> Iterator[UnitFacts]:
    if path.is_symlink() and str(path.readlink()) == "/dev/null":
        if not (air_gapped and path.name in MASKED):
            yield UnitFacts(place.named(path), "masked")
    elif path.is_file() and not path.is_symlink():
        yield UnitFacts(place.named(path), "replaced")


def _dropins(place: Place) -> Iterator[UnitFacts]:
    switch = {piece.target for piece in pieces(place)} if place.share.is_dir() else set()
    for path in (found for folder in map(place.at, _FOLDERS) for found in _of_ours(folder)):
        if place.named(path) in switch:  # `mode-half-way` tells of these
            continue
        shipped = _shipped(place, path)
        lines = (_bytes(path) or b"").splitlines()
        more = b"\n".join(line for line in lines if line not in (shipped or ()))
        if _WEAKENING.search(more.decode("utf-8", "replace")):
            yield UnitFacts(place.named(path), "weakened")
        elif shipped is None:
            yield UnitFacts(place.named(path), "drop-in")


def _of_ours(folder: Path) -> list[Path]:
    """Drop-ins for our units, and those for every service."""
    return sorted((*folder.glob("conductor*.d/*.conf"), *folder.glob("service.d/*.conf")))


def _shipped(place: Place, path: Path) -> list[bytes] | None:
    """What `conductor setup` may have taken from the package into a drop-in of its own: those lines
    are known. None for a drop-in that it does not write."""
    name = f"{path.parent.name}/{path.name}"
    if path.parent.parent != place.overrides or name not in _OURS:
        return None
    return (_bytes(place.share / _OURS[name]) or b"").splitlines() if _OURS[name] else []


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
