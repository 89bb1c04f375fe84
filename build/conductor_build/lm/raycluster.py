"""A Ray cluster for rollouts: one that is there already, or one of this machine's own.

Ray is told nothing about us and tells nobody about us: no usage statistics, no dashboard, no log
files copied about. A cluster of our own speaks over an address of the loopback interface, demands a
token that is made anew in every process, keeps its files in the folder it is given, and ends with
the context, whatever happens in it. Ray's own servers listen on every interface and have no setting
for that: the token is what keeps others out.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conductor.errors import ConductorError

LOOPBACK = "127.0.0.2"
"""Of loopback, but not the one that Ray replaces by the address of a network card."""


class RayError(ConductorError):
    """No rollouts on Ray: the message says what to do."""


@dataclass(frozen=True)
class Cluster:
    """Which cluster, and how much of this machine one of our own may use."""

    address: str | None = None
    """`host:port` of a cluster that runs already, which nobody here stops. Its token is expected
    where Ray looks for it. None: one of our own."""
    cpus: int = 1
    object_store_bytes: int = 80 * 2**20
    """Shared memory for what is put once for all actors. Ray's least is 75 MiB."""


@contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[None]:
    """A context in which Ray can be used; a cluster of our own keeps its files in `folder`, whose
    path must be short: sockets are made under it.

    Raises `RayError` when no cluster answers, or when this process uses Ray already.
    """
    _quiet()
    import ray

    if ray.is_initialized():
        raise RayError("this process uses a Ray cluster already: leave that one first")
    try:
        if cluster.address is None:
            os.environ.setdefault("RAY_AUTH_TOKEN", _token())
            ray.init(
                address="local",
                num_cpus=cluster.cpus,
                object_store_memory=cluster.object_store_bytes,
                _node_ip_address=LOOPBACK,
                _temp_dir=str(folder),
                **_SAME,
            )
        else:
            ray.init(address=cluster.address, **_SAME)
        yield
    except (ConnectionError, ValueError, OSError) as error:
        if ray.is_initialized():
            raise
        raise RayError(
            f"no Ray cluster at {cluster.address or 'this machine'} ({type(error).__name__})"
        ) from None
    finally:
        ray.shutdown()


_SAME: dict[str, Any] = {
    "include_dashboard": False,
    "log_to_driver": False,
    "configure_logging": False,
}


def _quiet() -> None:
    """What Ray reads from the environment when it is imported, and hands on to its processes."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_AUTH_MODE", "token")


@cache
def _token() -> str:
    return secrets.token_hex(32)
