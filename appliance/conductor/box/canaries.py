"""Attempts that must fail on an air-gapped machine: each tries one way out, and says how it ended.

    blocked:ENETUNREACH     the kernel refused, by that error
    open                    it got through, or somebody answered
    unanswered              nothing refused it: it may have left

They are only made where an air gap was declared: elsewhere they would be what they look for. The
addresses are those of documentation (RFC 5737, RFC 3849), the name is one that no resolver may ask
for abroad (RFC 6761).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

BLOCKED = "blocked:"
OPEN = "open"
UNANSWERED = "unanswered"

_LIMIT_S = 0.5
_REFUSED_BY_KERNEL = frozenset(
    {
        *(errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL),
        *(errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EPERM, errno.EACCES),
    }
)

CANARY_NAME = "conductor-canary"
"""An abstract name that nobody has; a test binds it outside, to see that it stays out of reach."""
_HEADER = b"\x13\x37\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
_QUERY = _HEADER + b"\x06canary\x07invalid\x00\x00\x01\x00\x01"

_PATHS = {
    "dbus": "/run/dbus/system_bus_socket",
    "systemd": "/run/systemd/private",
    "resolver": "/run/systemd/resolve/io.systemd.Resolve",
    "name-cache": "/run/nscd/socket",
    "docker": "/run/docker.sock",
}


def released() -> dict[str, str]:
    """How every attempt ended, by name. Blocks for at most a few seconds, none when all is well."""
    ended = {name: _ended(attempt) for name, attempt in _NETWORK.items()}
    ended |= {name: _unix(path) for name, path in _PATHS.items()}
    return {**ended, "abstract": _unix(f"\0{CANARY_NAME}")}


def escaped(ended: dict[str, str]) -> list[str]:
    """The names of those that were not blocked."""
    return [name for name, how in ended.items() if not how.startswith(BLOCKED)]


def _ended(attempt: Callable[[], str]) -> str:
    try:
        return attempt()
    except TimeoutError:
        return UNANSWERED
    except OSError as error:
        return _blocked(error) if error.errno in _REFUSED_BY_KERNEL else OPEN


def _blocked(error: OSError) -> str:
    return BLOCKED + errno.errorcode.get(error.errno or 0, "unknown")


def _tcp(family: socket.AddressFamily, host: str) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as canary:
        canary.settimeout(_LIMIT_S)
        canary.connect((host, 443))
    return OPEN


def _udp() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as canary:
        canary.connect(("192.0.2.1", 9))
        canary.send(b"conductor canary")
    return OPEN


def _dns() -> str:
    """Asks the resolver that systemd-resolved would be. A port without a listener refuses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as canary:
        canary.settimeout(_LIMIT_S)
        canary.connect(("127.0.0.53", 53))
        canary.send(_QUERY)
        try:
            canary.recv(512)
        except ConnectionRefusedError as error:
            return _blocked(error)
    return OPEN


def _raw() -> str:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
        return OPEN


def _unix(path: str) -> str:
    """Whoever is not there, or may not be reached, is no way out, whatever the error."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as canary:
            canary.settimeout(_LIMIT_S)
            canary.connect(path)
    except OSError as error:
        # A full queue, or a socket of another kind: there is somebody.
        there = isinstance(error, TimeoutError) or error.errno in (errno.EAGAIN, errno.EPROTOTYPE)
        return OPEN if there else _blocked(error)
    return OPEN


_NETWORK: dict[str, Callable[[], str]] = {
    "tcp": lambda: _tcp(socket.AF_INET, "192.0.2.1"),
    "tcp6": lambda: _tcp(socket.AF_INET6, "2001:db8::1"),
    "udp": _udp,
    "dns": _dns,
    "raw": _raw,
}
