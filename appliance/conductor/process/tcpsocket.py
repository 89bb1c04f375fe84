"""A TCP socket on one of the API's own addresses."""

from __future__ import annotations

import socket

from conductor.errors import StartError


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to a literal address, not yet listening; port 0 lets the kernel choose.

    Raises `StartError`, for instance when somebody listens there.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StartError(
            f"{host}:{port} cannot be listened on ({error.strerror}): is another appliance "
            "running? Change it under api: in appliance.yaml."
        ) from None
    return listener
