"""Reading a policy in a process of its own, for an event loop that must not stand still.

A large file takes a tenth of a second to read, some of it in single calls that no other thread can
interrupt: every stream would wait. The process that reads it gives back what it made, a `Site`, as
a pickle, which takes 5 ms to take in (500 rules).

Why a pickle may be believed here: it comes through a pipe of a process that was started here, from
this code, as this user, with no environment, and that read only what would be read here otherwise.
Whoever could make it lie could as well change this process. All the same nothing but the classes
that a site is made of is ever looked up.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import orjson
import structlog

from conductor.activation.quiet import read_quietly, uncollected
from conductor.activation.sites import site_of
from conductor.config import POLICY, Site

TIMEOUT_S = 30.0

_FOREIGN = ("pathlib", "PosixPath")
"""What a site is made of besides our own classes."""
_OURS = "conductor."

log = structlog.get_logger()


def read_apart(site: Site, policy: bytes) -> Site:
    """`site.with_policy(policy)`, ready to decide. For a thread; raises `ConfigError`.

    Where no process can be had, it is read here, which is as good but not as smooth.
    """
    made = _made_by_a_process(site, policy)
    return read_quietly(site, policy) if made is None else made


def _made_by_a_process(site: Site, policy: bytes) -> Site | None:
    files = {**site.files, POLICY: policy}
    asked = {
        "directory": str(site.directory),
        "files": {name: b64encode(data).decode("ascii") for name, data in files.items()},
    }
    # -P: no module from the working directory.
    argv = [sys.executable, "-P", "-m", "conductor.activation.apart"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.defpath}
    try:
        done = subprocess.run(  # noqa: S603 - our own code, nothing of the candidate in it
            argv,
            input=orjson.dumps(asked),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        log.warning("policy_read_here")
        return None
    return taken_in(done.stdout)


def taken_in(data: bytes) -> Site | None:
    """The site in a pickle, ready to decide; None when it holds anything else."""
    with uncollected():
        try:
            made = _Unpickler(io.BytesIO(data)).load()
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError):
            return None
        if not isinstance(made, Site):
            return None
        _ = made.policy.masks  # compiled here, not by the first request
        return made


class _Unpickler(pickle.Unpickler):
    """Knows what a site is made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        ours = module.startswith(_OURS) and isinstance(found, type)
        if not ours and (module, name) != _FOREIGN:
            raise pickle.UnpicklingError("not part of a site")
        return found


def main() -> None:
    """Read what standard input holds; the site, or nothing and exit 1."""
    asked = orjson.loads(sys.stdin.buffer.read())
    files = {name: b64decode(text) for name, text in asked["files"].items()}
    site = site_of(Path(asked["directory"]), files)
    sys.stdout.buffer.write(pickle.dumps(site, pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main()
