"""Who is at the other end of a Unix socket, as the kernel tells it (SO_PEERCRED, unix(7))."""

from __future__ import annotations

import socket
import struct

from aiohttp import web

from conductor.errors import BadRequest

_PEER = struct.Struct("3i")  # ucred: process, user, group


def uid_of(request: web.Request) -> int:
    """The peer's user id. Raises `BadRequest` when the connection is gone."""
    peer = request.get_extra_info("socket")
    if peer is None:
        raise BadRequest("The connection is gone.")
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(data)[1])
