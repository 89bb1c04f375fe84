"""Which network a process has, as the kernel tells it: its namespace, interfaces and routes.

Read from below `/proc/PID/net`, which is always that process's own namespace; `/sys/class/net` is
whichever one it was mounted in. Nothing here opens a socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SELF = Path("/proc/self")
LOOPBACK = "lo"

FALLBACK_TUNNELS = frozenset(
    {"tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"}
)
"""What the kernel puts, down, into every new namespace once a tunnel module is loaded: no network
until somebody with CAP_NET_ADMIN says so, and then there is a route."""


@dataclass(frozen=True)
class Network:
    """What a process could reach. None for what cannot be read."""

    namespace: int | None
    """The inode of its network namespace."""
    interfaces: tuple[str, ...] | None
    routes: int | None
    """To anywhere but the loopback interface, IPv4 and IPv6 together."""
    abstract_sockets: int | None
    """Sockets with an abstract name in reach: those have no file that could be hidden."""

    @property
    def ways_out(self) -> tuple[str, ...]:
        """Interfaces that could lead out."""
        harmless = FALLBACK_TUNNELS | {LOOPBACK}
        return tuple(name for name in self.interfaces or () if name not in harmless)


def network(process: Path = SELF) -> Network:
    """The network of a process, by its folder below `/proc`. Never raises."""
    return Network(
        namespace=namespace(process),
        interfaces=_interfaces(_lines(process / "net" / "dev")),
        routes=_routes(_lines(process / "net" / "route"), _lines(process / "net" / "ipv6_route")),
        abstract_sockets=_abstract(_lines(process / "net" / "unix")),
    )


def namespace(process: Path = SELF) -> int | None:
    """The inode of a process's network namespace; None when it may not be seen."""
    try:
        return (process / "ns" / "net").stat().st_ino
    except OSError:
        return None


def _lines(path: Path) -> list[str] | None:
    try:
        return path.read_text("ascii", "replace").splitlines()
    except OSError:
        return None


def _interfaces(lines: list[str] | None) -> tuple[str, ...] | None:
    """Of `/proc/net/dev`: two lines of heading, then `name: counters`."""
    if lines is None:
        return None
    return tuple(sorted(line.partition(":")[0].strip() for line in lines[2:] if ":" in line))


def _routes(four: list[str] | None, six: list[str] | None) -> int | None:
    """Of `/proc/net/route` (a heading, the interface first) and `ipv6_route` (no heading, the
    interface last). Without IPv6 in the kernel there is no such file."""
    if four is None:
        return None
    devices = [line.split()[0] for line in four[1:] if line.strip()]
    devices += [line.split()[-1] for line in six or [] if line.strip()]
    return sum(device != LOOPBACK for device in devices)


def _abstract(lines: list[str] | None) -> int | None:
    """Of `/proc/net/unix`: the name is the eighth field, `@...` when it is abstract."""
    if lines is None:
        return None
    names = [line.split(None, 7)[7] for line in lines[1:] if len(line.split(None, 7)) == 8]
    return sum(name.startswith("@") for name in names)
