"""Started in the place of a service, with all of its unit's walls: tries what must not succeed.

Prints one JSON object: what was tried, and "open" or how the kernel refused. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

OUTSIDE = ("203.0.113.1", 7777)
LIMIT_S = 0.7

READ = (
    "/etc/conductor/policy.yaml",
    "/etc/conductor/credentials/vendor/played",
    "/etc/conductor/credentials/sealed/played",
    "/run/credentials/conductor-egress.service/vendor_played",
    "/run/credentials/conductor-egress.service/sealed_played",
    "/var/lib/conductor",
    "/var/lib/conductor/audit",
    "/var/lib/conductor-published/policy",
    "/etc/shadow",
    "/dev/kmsg",
    "/proc/kallsyms",
)
WRITE = (
    "/etc/conductor/written",
    "/opt/conductor/current/bin/written",
    "/usr/bin/written",
    "/var/lib/conductor/written",
    "/var/lib/conductor-published/written",
    "/run/conductor/written",
    "/run/conductor/workers/written",
    "/run/conductor/embedded/one/written",
    "/run/conductor/embedded/other/written",
)


def refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except TimeoutError:
        return "timeout"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "open"


def read(path: str) -> None:
    if Path(path).is_dir():
        names(path)
    else:
        with Path(path).open("rb") as file:
            file.read(1)


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def write(path: str) -> None:
    Path(path).write_text("x")
    with contextlib.suppress(OSError):
        Path(path).unlink()


def dial(family: int, kind: int, address: object, data: bytes = b"") -> None:
    with socket.socket(family, kind) as sock:
        sock.settimeout(LIMIT_S)
        sock.connect(address)
        if data:
            sock.send(data)


def turned(descriptor: int, address: object) -> None:
    """A listener of PID 1's, made to dial: connect(AF_UNSPEC) dissolves it, then it is free."""
    family = address[0] if isinstance(address, str) else socket.AF_INET
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.settimeout(LIMIT_S)
        with contextlib.suppress(OSError):
            _unspecified(sock)
        if sock.family != (socket.AF_UNIX if isinstance(address, str) else socket.AF_INET):
            raise OSError(errno.EAFNOSUPPORT, "another family", family)
        sock.connect(address)


def _unspecified(sock: socket.socket) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.connect(sock.fileno(), bytes(16), 16):
        raise OSError(ctypes.get_errno(), "connect")


def main() -> None:
    inet, unix, stream, datagram = (
        *(socket.AF_INET, socket.AF_UNIX),
        *(socket.SOCK_STREAM, socket.SOCK_DGRAM),
    )
    canary = f"canary of {os.getuid()}".encode()
    dials = {
        "tcp": lambda: dial(inet, stream, OUTSIDE),
        "udp": lambda: dial(inet, datagram, OUTSIDE, canary),
        "dns": lambda: dial(inet, datagram, ("127.0.0.53", 53), canary),
        "loopback": lambda: dial(inet, stream, ("127.0.0.1", 18099)),
        "ipv6": lambda: dial(socket.AF_INET6, stream, ("2001:db8::1", 7777)),
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
        "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
        "dbus": lambda: dial(unix, stream, "/run/dbus/system_bus_socket"),
        "abstract": lambda: dial(unix, stream, "\0proxy-of-the-host"),
        "manager": lambda: dial(unix, stream, "/run/systemd/private"),
    }
    # Named, and numbered from 3: sd_listen_fds(3).
    called = os.environ.get("LISTEN_FDNAMES", "").split(":") if "LISTEN_FDS" in os.environ else []
    listeners = {f"{name}{3 + place}": 3 + place for place, name in enumerate(called)}
    found = {
        "uid": os.getuid(),
        "read": {path: refusal(lambda path=path: read(path)) for path in READ},
        "write": {path: refusal(lambda path=path: write(path)) for path in WRITE},
        "dial": {name: refusal(attempt) for name, attempt in dials.items()},
        "turned": {
            name: [
                refusal(lambda fd=fd: turned(fd, OUTSIDE)),
                refusal(lambda fd=fd: turned(fd, "/run/proxy-of-the-host.sock")),
            ]
            for name, fd in listeners.items()
        },
        "interfaces": names("/sys/class/net"),
        "processes": len([name for name in names("/proc") if name.isdigit()]),
        "fork_namespace": refusal(_unshare),
        "credentials": names(os.environ["CREDENTIALS_DIRECTORY"])
        if "CREDENTIALS_DIRECTORY" in os.environ
        else [],
    }
    print(json.dumps(found))


def _unshare() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")


if __name__ == "__main__":
    main()
