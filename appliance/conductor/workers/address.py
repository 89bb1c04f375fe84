"""Where a worker listens: dialling it, and keeping a few connections for the next call.

Nothing here resolves a name, and nothing but loopback and Unix sockets is ever dialled.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from pathlib import Path

from conductor.core import Failure, TcpEndpoint, UnixEndpoint
from conductor.errors import WorkerError
from conductor.workers.connection import Connection

KEEP_ALIVE_S = 4.0
"""Shorter than any back-end's own idle limit: vLLM (uvicorn) and llama.cpp close after 5 s."""
_MAX_KEPT = 64
_BACKLOG_WAIT_S = 0.005
_OUR_OWN_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Address:
    """One endpoint, with the connections to it that wait for the next call."""

    def __init__(self, endpoint: UnixEndpoint | TcpEndpoint) -> None:
        self._endpoint = endpoint
        self._kept: dict[Connection, asyncio.TimerHandle] = {}
        self._closed = False

    @property
    def host(self) -> str:
        """Value of the `Host` header."""
        if isinstance(self._endpoint, UnixEndpoint):
            return "localhost"
        host, port = self._endpoint.host, self._endpoint.port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def take(self) -> Connection | None:
        """A kept connection that is still good, the latest used first."""
        while self._kept:
            connection, expiry = self._kept.popitem()
            expiry.cancel()
            if connection.clean:
                return connection
            connection.abort()
        return None

    def keep(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end, for a while."""
        if self._closed or len(self._kept) >= _MAX_KEPT or not connection.clean:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._kept[connection] = loop.call_later(KEEP_ALIVE_S, self._expire, connection)

    async def dial(self) -> Connection:
        """A fresh connection. Raises `WorkerError`: `REFUSED`, or `OVERLOADED` for want of files.
        Waits without end for a place in the peer's backlog."""
        try:
            if isinstance(self._endpoint, UnixEndpoint):
                return await _dial_unix(self._endpoint.path)
            return await _dial_tcp(self._endpoint.host, self._endpoint.port)
        except OSError as error:
            if error.errno in _OUR_OWN_LIMITS:
                raise WorkerError(Failure.OVERLOADED, "no file or buffer left") from None
            raise WorkerError(Failure.REFUSED, "cannot connect") from None

    def close(self) -> None:
        """Abort what is kept, and keep nothing from now on."""
        self._closed = True
        while self._kept:
            connection, expiry = self._kept.popitem()
            expiry.cancel()
            connection.abort()

    def _expire(self, connection: Connection) -> None:
        del self._kept[connection]
        connection.abort()


async def _dial_unix(path: Path) -> Connection:
    """Connect, waiting for room in the backlog: when it is full, a non-blocking connect to a Unix
    socket fails with EAGAIN (unix(7)), which event loops take for an error or for success."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        while True:
            try:
                sock.connect(str(path))
                break
            except BlockingIOError:
                await asyncio.sleep(_BACKLOG_WAIT_S)
        loop = asyncio.get_running_loop()
        return (await loop.create_unix_connection(Connection, sock=sock))[1]
    except BaseException:
        sock.close()
        raise


async def _dial_tcp(host: str, port: int) -> Connection:
    """Connect on this machine. `host` is judged here again, whatever configuration has judged."""
    family = _loopback_family(host)
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (host, port))
        return (await loop.create_connection(Connection, sock=sock))[1]
    except BaseException:
        sock.close()
        raise


def _loopback_family(host: str) -> socket.AddressFamily:
    """Raises `WorkerError` for a name, and for every address that is not loopback."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise WorkerError(Failure.REFUSED, "no literal address") from None
    if not address.is_loopback:
        raise WorkerError(Failure.REFUSED, "not a loopback address")
    return socket.AF_INET if address.version == 4 else socket.AF_INET6
