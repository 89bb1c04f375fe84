"""Switching a machine between `air-gapped` and `connected`: what is put where, and in which order.

The file `mode.json` (`airgap.py`) comes first on the way into the gap and last on the way out:
killed at any moment, the machine counts as air-gapped, and the same command run again finishes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from conductor.box.airgap import AIR_GAPPED, CONNECTED, MARKER, Marker, Switch, read_marker
from conductor.box.command import Run
from conductor.box.firewall import RULES
from conductor.box.place import CONFIG, Place
from conductor.box.wholefile import READERS, put, sync_folder
from conductor.errors import StartError

SHARE = "air-gapped"
"""Below the package's shared files: everything that the switch puts in place."""
MASKED = ("conductor-egress.service", "conductor-egress.socket")
SERVICES = ("conductor-planner.service", "conductor-worker@*.service", "conductor.service")
"""What has to start anew to be in another mode; the API last, since it records what it finds."""
GUARD = "conductor-airgap.service"
LOOK = "conductor-airgap-seen.timer"
LOCK = ".mode.lock"
"""Beside the configuration, root's alone: whoever may open a file may lock it, and the services may
open their configuration."""
_NOWHERE = "/dev/null"


@dataclass(frozen=True)
class Piece:
    """A shipped file, and where it goes on the running machine."""

    source: Path
    target: str

    @property
    def secret(self) -> bool:
        """Rules stand beside the configuration, and are read by the same group."""
        return self.target.startswith(f"{CONFIG}/")


def pieces(place: Place, share: Path | None = None) -> list[Piece]:
    """Everything that belongs in place on an air-gapped machine, as the version ships it that is in
    force, or whose `share` is given. Raises `StartError`."""
    folder = (share or place.share) / SHARE
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise StartError(f"{folder} is missing or empty: install the package again")
    return [Piece(path, _target(path.relative_to(folder).as_posix())) for path in files]


def _target(name: str) -> str:
    return f"{CONFIG}/{name}" if name == RULES else f"/etc/systemd/system/{name}"


def switch(place: Place, mode: Switch, run: Run, at: str, uid: int) -> list[str]:
    """Switch, or finish switching; returns what to tell. `at`: now, UTC; `uid`: who asks.

    Raises `StartError` for what stands in the way (nothing is half open then), and `OSError`.
    """
    with _alone(place):
        before = read_marker(place.config)
        after = Marker(mode, before.number + 1, at, uid)
        if mode == AIR_GAPPED:
            return _close(place, before, after, run)
        return _open(place, before, after, run)


def _close(place: Place, before: Marker, after: Marker, run: Run) -> list[str]:
    wanted = pieces(place)
    _maskable(place)
    marker = replace(after, files=tuple(piece.target for piece in wanted))
    if before.mode == AIR_GAPPED and not before.damaged:  # begun or done already: no new switch
        marker = replace(before, files=tuple(dict.fromkeys((*before.files, *marker.files))))
    _mark(place, marker)
    _tell(place, run, "stop", *MASKED)
    for unit in MASKED:
        _mask(place.overrides / unit)
    _lay(place, wanted)
    _tell(place, run, "daemon-reload")
    said = []
    # Again: until it was masked, a connection to its listener could start it anew.
    if not _tell(place, run, "stop", *MASKED):
        said.append(f"egress may still run: see 'systemctl status {MASKED[0]}'")
    # Not restart: that would leave a moment without rules, and take the API along.
    if not _tell(place, run, "reload-or-restart", GUARD):
        said.append(f"the firewall rules are not loaded: see 'systemctl status {GUARD}'")
    return said + _restart(place, run)


def refresh(place: Place, share: Path | None = None) -> bool:
    """After a change of version: put in place what that one ships, where the machine is air-gapped;
    whether it is. Nothing that runs is told. Raises `StartError` and `OSError`."""
    if read_marker(place.config).mode != AIR_GAPPED:
        return False
    with _alone(place):
        marker, wanted = read_marker(place.config), pieces(place, share)
        targets = tuple(piece.target for piece in wanted)
        _lay(place, wanted)
        for target in set(marker.files) - set(targets):
            _remove(place, target)
        if not marker.damaged:
            _mark(place, replace(marker, files=targets))
    return True


def _lay(place: Place, wanted: list[Piece]) -> None:
    for piece in wanted:
        mode, group = (0o640, READERS) if piece.secret else (0o644, None)
        put(place.at(piece.target), piece.source.read_bytes(), mode, group)


def _open(place: Place, before: Marker, after: Marker, run: Run) -> list[str]:
    shipped = [piece.target for piece in pieces(place)]
    closed = before.mode != CONNECTED or any(os.path.lexists(place.at(one)) for one in shipped)
    # By itself: the API requires it, would be stopped with it, and then not be started anew.
    _tell(place, run, "stop", "--job-mode=ignore-dependencies", GUARD, LOOK)
    for target in dict.fromkeys((*before.files, *shipped)):
        _remove(place, target)
    for unit in MASKED:
        if _is_masked(place.overrides / unit):
            (place.overrides / unit).unlink()
    if place.overrides.is_dir():
        sync_folder(place.overrides)
    if closed:  # also where a marker from elsewhere, of a backup say, calls it connected
        _mark(place, after)
    _tell(place, run, "daemon-reload")
    said = _restart(place, run)
    _tell(place, run, "start", "conductor-egress.socket")
    return said


def _restart(place: Place, run: Run) -> list[str]:
    if not place.running:
        return ["nothing that runs was told: start the appliance under systemd for it to count"]
    said = []
    if not _tell(place, run, "try-restart", *SERVICES):
        said.append("not everything has started anew: see 'systemctl status conductor.target'")
    return said


def _tell(place: Place, run: Run, verb: str, *units: str) -> bool:
    return run(["systemctl", verb, *units]).good if place.running else True


def _mark(place: Place, marker: Marker) -> None:
    put(place.config / MARKER, marker.as_json(), 0o640, READERS)


def _maskable(place: Place) -> None:
    for unit in MASKED:
        path = place.overrides / unit
        if os.path.lexists(path) and not _is_masked(path):
            raise StartError(f"{place.named(path)} is a unit of your own: move it away first")


def _is_masked(path: Path) -> bool:
    return path.is_symlink() and str(path.readlink()) == _NOWHERE


def _mask(path: Path) -> None:
    if not _is_masked(path):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.symlink_to(_NOWHERE)


def _remove(place: Place, target: str) -> None:
    """Only what lies where the switch puts things: the list comes from a file."""
    path = place.at(target)
    ours = place.overrides in path.parents or target == f"{CONFIG}/{RULES}"
    if not ours or ".." in path.parts:
        return
    path.unlink(missing_ok=True)
    if path.parent.name.endswith(".d") and path.parent.is_dir() and not any(path.parent.iterdir()):
        path.parent.rmdir()


def lacking(place: Place) -> list[str]:
    """What an air-gapped machine should have in place and has not, or has otherwise: targets."""
    wrong = [
        piece.target for piece in pieces(place) if not _same(piece.source, place.at(piece.target))
    ]
    return wrong + [
        f"/etc/systemd/system/{unit}" for unit in MASKED if not _is_masked(place.overrides / unit)
    ]


def _same(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:
        return False


@contextmanager
def _alone(place: Place) -> Iterator[None]:
    """One switch at a time. Raises `StartError`."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(place.config / LOCK, flags, 0o600)
    except FileNotFoundError:
        raise StartError(f"{place.config} is not there: install the package first") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StartError("somebody else switches the mode at this moment: wait") from None
    finally:
        os.close(descriptor)
