"""What `conductor up` makes on a first start, and the lock that keeps two of them apart."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from conductor.audit import keys
from conductor.config import Site
from conductor.egress.permit import generate
from conductor.errors import StartError
from conductor.process.newfile import write_new
from conductor.process.tcpsocket import bound
from conductor.settings import Api


def prepare(site: Site) -> list[str]:
    """Make missing directories, API key files and permit keys; returns what to tell the user."""
    paths = site.appliance.paths
    for directory in (paths.state, paths.published, paths.run, paths.audit, paths.models):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    said = []
    for key in site.appliance.keys:
        if key.secret is None or key.secret.scheme != "file":
            continue
        path = Path(key.secret.name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            write_new(path, f"ck-{secrets.token_urlsafe(32)}\n".encode(), 0o600)
            said.append(f"made an API key for '{key.id}' in {path}")
    if keys.ensure(paths.audit_key, paths.audit):
        said.append(f"made the audit key in {paths.audit_key}: copy audit.pub to another machine")
    remote = any(worker.remote for worker in site.workers)
    if remote and not paths.permit_key.exists():
        generate(paths.permit_key, paths.permit_public)
        said.append(f"made the permit key pair in {paths.permit_key.parent}")
    return said


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Own the run directory, made when missing; raises `StartError` when somebody else does."""
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(run / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(
                f"an appliance is already running in {run}: stop it first, or use another paths.run"
            ) from None
        yield
    finally:
        os.close(descriptor)


def check_free(api: Api) -> None:
    """Raise `StartError` when somebody listens where `serve` would: its answers to our probes
    would pass for those of a process that in truth cannot start."""
    for host, port in ((api.host, api.port), (api.admin_host, api.admin_port)):
        bound(host, port).close()
