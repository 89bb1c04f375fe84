"""Whether systemd would run what the package has shipped: changes, replacements, drop-ins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from conductor.box.facts import UnitFacts
from conductor.box.modeswitch import MASKED, pieces
from conductor.box.place import Place

_WEAKENING = re.compile(
    r"^\s*(?:PrivateNetwork\s*=\s*(?:no|false|0|off)|User\s*=\s*root|NoNewPrivileges\s*=\s*(?:no|false|0)"
    r"|CapabilityBoundingSet\s*=\s*[^\s]|ExecStart\s*=)",
    re.IGNORECASE | re.MULTILINE,
)
"""What no drop-in of an administrator should say. Not complete: `systemd-analyze security` is."""
_OURS = frozenset({"conductor.socket.d/listen.conf", "conductor-planner.service.d/gpu.conf"})
"""Drop-ins that `conductor setup` writes."""


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
    path = place.overrides / name
    if path.is_symlink() and str(path.readlink()) == "/dev/null":
        if not (air_gapped and name in MASKED):
            yield UnitFacts(place.named(path), "masked")
    elif path.is_file() and not path.is_symlink():
        yield UnitFacts(place.named(path), "replaced")


def _dropins(place: Place) -> Iterator[UnitFacts]:
    switch = {piece.target for piece in pieces(place)} if place.share.is_dir() else set()
    for path in sorted(place.overrides.glob("conductor*.d/*.conf")):
        name = path.relative_to(place.overrides).as_posix()
        if place.named(path) in switch or name in _OURS:
            continue
        text = (_bytes(path) or b"").decode("utf-8", "replace")
        how = "weakened" if _WEAKENING.search(text) else "drop-in"
        yield UnitFacts(place.named(path), how)


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
