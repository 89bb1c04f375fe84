"""Asking the running appliance over its administrators' socket, from a command line."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path
from typing import Any

import orjson

from conductor.errors import ConductorError

SOCKET = "admin.sock"
"""Below `paths.run`."""

TIMEOUT_S = 180.0
"""Longer than a check may take."""


class DaemonDown(ConductorError):
    """Nobody listens on the administrators' socket."""


class AdminRefused(ConductorError):
    """The appliance would not do it; the message is its own."""


def ask(run: Path, method: str, path: str, body: object | None = None) -> dict[str, Any]:
    """One question to the appliance whose sockets are in `run`; its answer, a JSON object.

    A refused candidate is an answer. Raises `DaemonDown` and `AdminRefused`.
    """
    connection = _Connection(run / SOCKET)
    try:
        data = b"" if body is None else orjson.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = orjson.loads(response.read())
    except (FileNotFoundError, ConnectionRefusedError):
        raise DaemonDown("the appliance is not running: start it") from None
    except PermissionError:
        raise AdminRefused("only the appliance's own user and root may administer it") from None
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
        raise AdminRefused(f"the appliance did not answer ({type(error).__name__})") from None
    finally:
        connection.close()
    if "error" in answer:
        raise AdminRefused(str(answer["error"]["message"]))
    return dict(answer)


class _Connection(http.client.HTTPConnection):
    """HTTP to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("conductor", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
