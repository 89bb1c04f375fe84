"""A listening Unix socket that survives `kill -9` of its last owner and never steals a live one.

The socket has mode 0600 from its first moment. A file that a killed process left behind is removed;
one behind which somebody listens is not, and neither is anything that is no socket.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from conductor.errors import StartError

MAX_PATH_BYTES = 107
"""Linux: `sun_path` has 108 bytes with its closing zero."""
BACKLOG = 1024
"""Connections that may wait to be accepted."""


def listen(path: Path) -> socket.socket:
    """Bind and listen at `path`, non-blocking; its folder is made (mode 0700) when missing.

    Raises `StartError` when the path is too long, in use, no socket, or not ours to write.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise StartError(
            f"a Unix socket path has at most {MAX_PATH_BYTES} bytes: use a shorter one"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(path.parent)
        with _locked(path.parent):
            _clear(path)
            return _bind(path)
    except OSError as error:
        raise StartError(f"cannot listen on {path.name}: {error.strerror}") from None


def check_folder(folder: Path) -> None:
    """Raise `StartError` when everybody may put a socket into `folder`: who then listens there?
    A folder that is not there yet is fine."""
    with suppress(FileNotFoundError):
        if folder.stat().st_mode & stat.S_IWOTH:
            raise StartError(
                f"everybody may write to {folder}, where sockets stand: chmod o-w it, or use "
                "another one"
            )


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """`listen`; at the end the socket is closed, and its file removed unless another process has
    bound it meanwhile."""
    listener = listen(path)
    try:
        yield listener
    finally:
        listener.close()
        with suppress(StartError, OSError), _locked(path.parent):
            _clear(path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Of two processes that start at once, the second sees what the first has bound."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _clear(path: Path) -> None:
    """Remove a socket behind which nobody listens. Raises `StartError` for anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(f"{path.name} exists and is no socket: move it away, or use another path")
    if _answers(path):
        raise StartError(f"another process listens on {path.name}: stop it, or use another path")
    path.unlink()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True  # somebody listens, whose queue is full
        return True


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener
