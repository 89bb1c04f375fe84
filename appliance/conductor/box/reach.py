"""Whether a service's account gets through to a Unix socket: root gets through to every one."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conductor.box.wholefile import READERS

Reach = Literal["open", "closed", "silent", "unknown"]
"""`closed`: the account may not connect. `silent`: nobody listens. `unknown`: we may not try."""

LIMIT_S = 2.0


@dataclass(frozen=True)
class _Account:
    user: int
    group: int
    groups: tuple[int, ...]


def reach(path: Path, account: str) -> Reach:
    """Connect there as `account` where we are root and there is one, else as who we are."""
    who = _account(account) if os.geteuid() == 0 else None
    code = _dial(path) if who is None else _dial_as(path, who)
    if code in (errno.EACCES, errno.EPERM):
        return "unknown" if who is None else "closed"
    return "silent" if code else "open"


def _account(name: str) -> _Account | None:
    """With the groups that our units give it; None where this machine has none of that name."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = set(os.getgrouplist(name, entry.pw_gid))
    with suppress(KeyError):
        groups.add(grp.getgrnam(READERS).gr_gid)
    return _Account(entry.pw_uid, entry.pw_gid, tuple(sorted(groups)))


def _dial(path: Path) -> int:
    """The error's number, or 0."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(LIMIT_S)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno or errno.ETIMEDOUT
    return 0


def _dial_as(path: Path, who: _Account) -> int:
    """In a process of its own, since there is no way back from an account. It does nothing else."""
    child = os.fork()
    if child == 0:
        code = errno.ENOTRECOVERABLE
        try:
            os.setgroups(who.groups)
            os.setresgid(who.group, who.group, who.group)
            os.setresuid(who.user, who.user, who.user)
            code = _dial(path)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
