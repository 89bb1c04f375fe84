"""The map in docs/architecture.md shows every room."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "appliance" / "conductor"

_LINE = re.compile(r"( {4}| {6})((?:\w+/|\w+\.py)(?: \w+\.py)*)")
"""Indented by four: a room, or files of the top level; by six: files of the room above."""


def on_the_map() -> set[str]:
    """The files that the section "Rooms" lists."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    listed, room = set(), ""
    for match in filter(None, map(_LINE.match, section.splitlines())):
        indent, names = match.groups()
        if names.endswith("/"):
            room = names
        else:
            listed |= {(room if len(indent) == 6 else "") + name for name in names.split()}
    return listed


def test_every_file_has_its_line_on_the_map() -> None:
    paths = (path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    assert on_the_map() == {path for path in paths if not path.endswith("__init__.py")}
