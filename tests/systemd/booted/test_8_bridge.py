"""A model server that speaks TCP only: its network is taken away, and a bridge reaches it."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import HERE, UnixConnection, run, status, until

pytestmark = pytest.mark.full

SOCKET = Path("/run/conductor-bridges/played.sock")
UNITS = Path("/etc/systemd/system")
SERVER = f"""[Service]
ExecStart=/opt/conductor/current/bin/python {HERE}/players.py /run/played.sock 11434 /run/played.log
"""


@pytest.fixture(scope="module", autouse=True)
def bridged() -> Iterator[None]:
    (UNITS / "played.service").write_text(SERVER)
    (UNITS / "played.service.d").mkdir()
    workers = Path("/usr/share/conductor/workers")
    (UNITS / "played.service.d/bridged.conf").write_text((workers / "bridged.conf").read_text())
    for unit in ("conductor-bridge@.socket", "conductor-bridge@.service"):
        (UNITS / unit).write_text((workers / unit).read_text())
    Path("/etc/conductor-bridges").mkdir()
    Path("/etc/conductor-bridges/played").write_text("PORT=11434\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "played.service")
    yield
    run("systemctl", "stop", "played.service", "conductor-bridge@played.socket")
    for path in (*UNITS.glob("conductor-bridge@*"), UNITS / "played.service"):
        path.unlink()


def answered() -> int:
    connection = UnixConnection(SOCKET, 10)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def test_the_server_is_reached_through_the_bridge() -> None:
    until(lambda: answered() == 200, 15)


def test_its_port_is_nowhere_on_the_machine() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 11434), 2)


def test_only_the_api_may_use_the_bridge() -> None:
    dial = f"import socket; socket.socket(socket.AF_UNIX).connect('{SOCKET}')"
    for account, expected in (("conductor", 0), ("conductor-egress", 1)):
        argv = ("runuser", "-u", account, "--", "python3", "-c", dial)
        assert status(*argv) == expected, account
