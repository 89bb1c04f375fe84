"""A process takes over the socket of a dead one, and never that of a live one."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor.errors import StartError
from conductor.process.unixsocket import listen, listening
from support.planner import socket_folder


@pytest.fixture
def path() -> Iterator[Path]:
    with socket_folder() as folder:
        yield folder / "planner.sock"


def test_the_socket_and_its_folder_are_for_the_owner_alone(path: Path) -> None:
    nested = path.parent / "run" / "planner.sock"
    with listening(nested):
        assert stat.S_IMODE(nested.stat().st_mode) == 0o600
        assert stat.S_IMODE(nested.parent.stat().st_mode) == 0o700
    assert not nested.exists()


def test_a_socket_that_a_killed_process_left_is_taken_over(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(path), socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))


def test_a_socket_behind_which_somebody_listens_is_left_alone(path: Path) -> None:
    with listening(path) as first:
        with pytest.raises(StartError, match="another process listens"):
            listen(path)
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(path))
            first.accept()[0].close()


def test_a_live_socket_whose_queue_is_full_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as peer:
        busy.bind(str(path))
        busy.listen(0)
        peer.connect(str(path))
        with pytest.raises(StartError, match="another process listens"):
            listen(path)


def test_what_is_no_socket_is_never_removed(path: Path) -> None:
    path.write_text("notes")
    with pytest.raises(StartError, match="no socket"):
        listen(path)
    target = path.with_name("target")
    target.write_text("notes")
    link = path.with_name("link.sock")
    link.symlink_to(target)
    with pytest.raises(StartError, match="no socket"):
        listen(link)
    assert path.read_text() == target.read_text() == "notes"


def test_a_path_that_cannot_be_bound_says_why(path: Path) -> None:
    with pytest.raises(StartError, match="at most 107 bytes"):
        listen(path.parent / ("x" * 120))
    path.write_text("a file")
    with pytest.raises(StartError, match="cannot listen"):
        listen(path / "planner.sock")


def test_the_end_of_one_server_does_not_remove_the_socket_of_the_next(path: Path) -> None:
    with listening(path) as first:
        first.close()
        second = listen(path)
    assert path.exists()
    second.close()
