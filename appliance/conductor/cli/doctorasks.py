"""What `conductor doctor` asks of what runs: sockets, workers, the appliance's own status."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import stat
from pathlib import Path
from typing import Any

import orjson

from conductor.box.command import Run
from conductor.box.facts import Listener, Running
from conductor.box.place import Place
from conductor.box.reach import Reach, reach
from conductor.core import TcpEndpoint, UnixEndpoint, Worker
from conductor.process.probe import answers
from conductor.settings import Paths

LIMIT_S = 2.0
METRICS = "metrics.sock"
_ASKED = {"api.sock": "/healthz", METRICS: "/healthz", "admin.sock": "/healthz"}
_MOST_BYTES = 1 << 20
_PORT = re.compile(r"^ListenStream\s*=\s*\S+:(\d{1,5})\s*$", re.MULTILINE)


def listeners(paths: Paths, *, by_tcp: bool) -> tuple[Listener, ...]:
    """The sockets of the API's process, and of the planner's. `by_tcp`: applications come by TCP,
    from addresses that we are not at."""
    asked = {**_ASKED, "planner.sock": "/readyz"}
    if by_tcp:
        del asked["api.sock"]
    return tuple(_listener(paths.run / name, question) for name, question in asked.items())


def _listener(path: Path, question: str) -> Listener:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Listener(str(path), exists=False)
    except OSError:
        return Listener(str(path), exists=True)
    answer = asyncio.run(answers(path, question)) if stat.S_ISSOCK(mode) else False
    return Listener(str(path), exists=True, answers=answer, open_to_all=bool(mode & stat.S_IWOTH))


def ports(place: Place, dropin: Path, run: Run) -> tuple[Listener, ...]:
    """Of the port that `conductor setup` has systemd listen on for applications. One that somebody
    else has does not answer for us."""
    taken = {port for name in ("tcp", "tcp6") for port in _listening(place.at("/proc/net") / name)}
    ours = run(["systemctl", "is-active", "--quiet", "conductor.socket"]).good
    named = [int(port) for port in _PORT.findall(_text(dropin))]
    return tuple(
        Listener(f"TCP port {port}", exists=port in taken, answers=None if ours else False)
        for port in named
    )


def _listening(table: Path) -> set[int]:
    """Of `/proc/net/tcp`: a heading, then `sl local_address rem_address st ...`, in hex."""
    rows = [line.split() for line in _text(table).splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == "0A"}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def reached(worker: Worker, account: str) -> Reach:
    """Whether somebody listens where a local worker should, and lets that account in."""
    endpoint = worker.endpoint
    if isinstance(endpoint, UnixEndpoint):
        return reach(endpoint.path, account)
    try:
        if isinstance(endpoint, TcpEndpoint):
            socket.create_connection((endpoint.host, endpoint.port), LIMIT_S).close()
    except OSError:
        return "silent"
    return "open"


def running(paths: Paths, start: dict[str, Any] | None) -> Running | None:
    """What the appliance says of itself; `start` is the latest record of its start."""
    status = _json(paths.run / METRICS, "/status")
    if status is None:
        return None
    return Running(
        ready=bool(status.get("ready")),
        reasons=tuple(map(str, status.get("reasons", ()))),
        keys=tuple(str(key["id"]) for key in status.get("keys", ())),
        build=str(start.get("build", "")) if start else "",
    )


def _json(path: Path, question: str) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection("conductor", timeout=LIMIT_S)
    try:
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(LIMIT_S)
        connection.sock.connect(str(path))
        connection.request("GET", question)
        return dict(orjson.loads(connection.getresponse().read(_MOST_BYTES)))
    except (OSError, http.client.HTTPException, ValueError, TypeError):
        return None
    finally:
        connection.close()
