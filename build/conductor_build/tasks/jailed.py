"""The inside of the jail: locks its own process down, then runs a command. Standard library only.

Run by `jail.py` as a script, never imported by it. What it does, each as far as the kernel lets it:

    user, net, pid, ipc    namespaces of its own: no network, no sight of other processes
    disk                   its own folder is a small one in memory: it cannot fill a disk
    landlock               files: reads what Python needs, writes its own folder alone (Linux 5.13)
    limits                 memory, CPU time, size of a file, open files, no core dump

It tells through a pipe which of these hold (`locks`), and at the end how the command ended. When
this process dies, so does everything that it started, where `pid` holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW = {
    "user": 0x10000000,
    "net": 0x40000000,
    "pid": 0x20000000,
    "ipc": 0x08000000,
    "mount": 0x00020000,
}
"""Namespaces, as clone(2) numbers them."""
_PRIVATE = 1 << 18 | 1 << 14
"""Of mount(2): what is mounted here is mounted nowhere else."""
_NO_DEVICES = 2 | 4
_PROCESSES = 64
_PDEATHSIG, _NO_NEW_PRIVS = 1, 38
_NOBODY = 65534
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls of landlock(7), the same numbers on every architecture."""
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _IOCTL = 1 << 13, 1 << 15
_PATH_BENEATH = 1


Settings = dict[str, Any]


def main() -> None:
    """`jailed.py PIPE SETTINGS COMMAND...`: settings as JSON, see `jail.py`."""
    pipe, settings, command = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
    signal.alarm(settings["wall_s"])  # should whoever started us be gone by then; 0: never
    _prctl(_NO_NEW_PRIVS, 1)
    held = _namespaces()
    if "mount" in held and _own_disk(settings):
        held.append("disk")
    os.chdir(settings["write"])
    child = os.fork()
    if child == 0:
        _lock(settings, held)
        os.write(pipe, f"locks {' '.join(held)}\n".encode())
        os.close(pipe)
        os.execve(command[0], command, {})  # noqa: S606 - the command is jail.py's
    _, status = os.waitpid(child, 0)
    os.write(pipe, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())


def _lock(settings: Settings, held: list[str]) -> None:
    """In the process that becomes the command."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if _landlock(settings["read"], settings["write"]):
        held.append("landlock")
    _limits(settings, "user" in held)


def _prctl(option: int, value: int) -> None:
    _LIBC.prctl(option, value, 0, 0, 0)


# -- namespaces -----------------------------------------------------------------------------------


def _namespaces() -> list[str]:
    """Those that are ours now. All at once, or each that can be had."""
    ids = os.getuid(), os.getgid()
    if _LIBC.unshare(sum(_NEW.values())) != 0:
        return [name for name, flag in _NEW.items() if name != "user" and _LIBC.unshare(flag) == 0]
    with contextlib.suppress(OSError):  # without a map we are nobody as well
        for file, text in (
            ("uid_map", f"{_NOBODY} {ids[0]} 1"),
            ("setgroups", "deny"),
            ("gid_map", f"{_NOBODY} {ids[1]} 1"),
        ):
            with open(f"/proc/self/{file}", "w") as opened:  # noqa: PTH123
                opened.write(text)
    return list(_NEW)


def _own_disk(settings: Settings) -> bool:
    """A file system in memory over the folder that may be written to."""
    room, size = settings["write"].encode(), f"size={settings['disk_bytes']}".encode()
    return bool(
        _LIBC.mount(None, b"/", None, _PRIVATE, None) == 0
        and _LIBC.mount(b"tmpfs", room, b"tmpfs", _NO_DEVICES, size) == 0
    )


# -- files ----------------------------------------------------------------------------------------


def _landlock(read: list[str], write: str) -> bool:
    version = _LIBC.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    every = (1 << 13) - 1 | (_REFER if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)
    every |= _IOCTL if version >= 5 else 0
    tcp = 3 if version >= 4 else 0  # neither bind nor connect
    scoped = 3 if version >= 6 else 0  # no abstract socket, no signal to the outside
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = struct.pack("QQQ", every, tcp, scoped)[:size]
    ruleset = _LIBC.syscall(_CREATE_RULESET, rules, size, 0)
    if ruleset < 0:
        return False
    for path, access in _rules(read, write, every):
        _allow(ruleset, path, access)
    return bool(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0) == 0)


def _rules(read: list[str], write: str, every: int) -> Iterator[tuple[str, int]]:
    yield from ((path, _EXECUTE | _READ_FILE | _READ_DIR) for path in read)
    yield from ((path, _READ_FILE | _WRITE_FILE) for path in ("/dev/null", "/dev/urandom"))
    yield write, every & ~(_EXECUTE | _IOCTL)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not there, so nothing to allow
    if not os.path.isdir(path):  # noqa: PTH112
        access &= _EXECUTE | _READ_FILE | _WRITE_FILE
    rule = struct.pack("=Qi", access, opened)
    _LIBC.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(opened)


# -- limits ---------------------------------------------------------------------------------------


def _limits(settings: Settings, counted_apart: bool) -> None:
    """Processes are counted for each user, but in a namespace of its own apart (Linux 5.14)."""
    if counted_apart:
        resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, settings["memory_bytes"]),
        (resource.RLIMIT_FSIZE, settings["file_bytes"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CPU, settings["cpu_s"] or resource.RLIM_INFINITY),
    ):
        resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    main()
