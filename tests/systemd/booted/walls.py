"""Runs `probe.py` in the place of a service, inside the walls of its unit."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from box import HERE, run

OUTSIDE = "203.0.113.1"
DROP_IN = """[Service]
Type=oneshot
Restart=no
WatchdogSec=0
ExecStart=
ExecStart=/opt/conductor/current/bin/python -IB {probe}
StandardOutput=truncate:/results/probe-%n.json
StandardError=journal
"""


@contextlib.contextmanager
def temptations() -> Iterator[list[bytes]]:
    """Something that listens at every address that is tried, so that a refusal means a wall. Yields
    what came by UDP."""
    came: list[bytes] = []
    run("ip", "address", "replace", f"{OUTSIDE}/32", "dev", "lo")
    with contextlib.ExitStack() as stack:
        for address in ((OUTSIDE, 7777), "\0proxy-of-the-host", "/run/proxy-of-the-host.sock"):
            stack.enter_context(_listening(address))
        for host, port in ((OUTSIDE, 7777), ("127.0.0.53", 53)):
            sink = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sink.bind((host, port))
            threading.Thread(target=_drain, args=(sink, came), daemon=True).start()
        yield came


@contextlib.contextmanager
def _listening(address: Any) -> Iterator[None]:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as listener:
        if isinstance(address, str) and not address.startswith("\0"):
            Path(address).unlink(missing_ok=True)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
        if isinstance(address, str) and not address.startswith("\0"):
            Path(address).chmod(0o666)
        yield


def _drain(sink: socket.socket, came: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while True:
            came.append(sink.recv(64))


def probed(units: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What the probe found inside each unit's walls. The appliance is stopped before.

    All drop-ins stand before anything starts: one service wants others.
    """
    drop_ins = {unit: _folder(unit) / "zz-probe.conf" for unit in units}
    try:
        for file in drop_ins.values():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(DROP_IN.format(probe=HERE / "probe.py"))
        run("systemctl", "daemon-reload")
        for unit in drop_ins:
            run("systemctl", "start", f"{unit}.service")
        return {unit: _told(unit) for unit in drop_ins}
    finally:
        for file in drop_ins.values():
            file.unlink(missing_ok=True)
        run("systemctl", "daemon-reload")


def _told(unit: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"/results/probe-{unit}.service.json").read_text())
    return found


def _folder(unit: str) -> Path:
    name = f"{unit.split('@')[0]}@" if "@" in unit else unit
    return Path("/run/systemd/system") / f"{name}.service.d"
