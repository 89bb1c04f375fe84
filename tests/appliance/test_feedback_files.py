"""The feedback log on disk: whole lines, for its owner alone, never more than so much."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conductor.feedback.files import Lines

LINE = b'{"n": 1}\n'


def all_lines(folder: Path) -> list[bytes]:
    return [line for path in folder.iterdir() for line in path.read_bytes().splitlines(True)]


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Writes beyond are cut, and then refused, as by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nobody_else_may_read_them_whatever_the_umask(tmp_path: Path) -> None:
    lines, before = Lines(tmp_path / "f", 10_000, 2), os.umask(0)
    try:
        lines.append(LINE)
    finally:
        os.umask(before)
    lines.close()
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o700
    assert stat.S_IMODE(lines.path().stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    lines = Lines(tmp_path, 10_000, 2)
    lines.path().write_bytes(LINE)
    lines.path().chmod(0o644)
    lines.append(LINE)
    lines.close()
    assert stat.S_IMODE(lines.path().stat().st_mode) == 0o600
    assert lines.path().read_bytes() == 2 * LINE


def test_it_never_holds_more_than_it_may_and_the_oldest_goes_first(tmp_path: Path) -> None:
    lines = Lines(tmp_path, 100, 3)
    for number in range(50):
        lines.append(b"%040d\n" % number)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 300
    lines.close()
    found = sorted(int(line) for line in all_lines(tmp_path))
    assert found == list(range(44, 50))
    assert int(lines.path().read_bytes().split()[-1]) == 49


def test_one_file_may_be_all_there_is(tmp_path: Path) -> None:
    lines = Lines(tmp_path, 100, 1)
    for number in range(5):
        lines.append(b"%060d\n" % number)
    lines.close()
    assert [path.name for path in tmp_path.iterdir()] == ["feedback.jsonl"]
    assert [int(line) for line in all_lines(tmp_path)] == [4]


def test_it_goes_on_where_it_was_left(tmp_path: Path) -> None:
    for _ in range(3):
        lines = Lines(tmp_path, 2 * len(LINE), 2)
        lines.append(LINE)
        lines.close()
    assert lines.path().read_bytes() == LINE and lines.path(1).read_bytes() == 2 * LINE


def test_a_line_longer_than_a_file_is_not_taken(tmp_path: Path) -> None:
    lines = Lines(tmp_path, 100, 2)
    with pytest.raises(OSError):
        lines.append(b"x" * 100 + b"\n")
    lines.append(LINE)
    lines.close()
    assert all_lines(tmp_path) == [LINE]


@pytest.mark.parametrize("torn", [b'{"n": 2', b"x" * 200_000])
def test_what_a_crash_cut_is_taken_away_when_it_is_opened(tmp_path: Path, torn: bytes) -> None:
    lines = Lines(tmp_path, 10**6, 2)
    lines.path().write_bytes(LINE + torn)
    lines.append(LINE)
    lines.close()
    assert lines.path().read_bytes() == 2 * LINE


def test_a_full_disk_leaves_whole_lines_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    lines = Lines(tmp_path, 10**6, 2)
    lines.append(LINE)
    with no_file_longer_than(len(LINE) + 4), pytest.raises(OSError):
        lines.append(LINE)
    assert lines.path().read_bytes() == LINE
    lines.append(LINE)
    lines.close()
    assert lines.path().read_bytes() == 2 * LINE


def test_it_does_not_follow_a_link_in_its_place(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"")
    lines = Lines(tmp_path / "f", 10_000, 2)
    (tmp_path / "f").mkdir()
    lines.path().symlink_to(other)
    with pytest.raises(OSError):
        lines.append(LINE)
    assert other.read_bytes() == b""
