"""The map in docs/architecture.md shows every room."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "Rooms": "appliance/conductor",
    "The build stage": "build/conductor_build",
    "The kernels": "kernels/conductor_kernels",
}

_LINE = re.compile(r"( {4}| {6})((?:\w+/|\w+\.py)(?: \w+\.py)*)")
"""Indented by four: a room, or files of the top level; by six: files of the room above."""


def on_the_map(title: str) -> set[str]:
    """The files that a section lists."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    listed, room = set(), ""
    for match in filter(None, map(_LINE.match, section.splitlines())):
        indent, names = match.groups()
        if names.endswith("/"):
            room = names
        else:
            listed |= {(room if len(indent) == 6 else "") + name for name in names.split()}
    return listed


@pytest.mark.parametrize("title", SECTIONS)
def test_every_file_has_its_line_on_the_map(title: str) -> None:
    source = ROOT / SECTIONS[title]
    paths = (path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    assert on_the_map(title) == {path for path in paths if not path.endswith("__init__.py")}
