"""What the documents name is there: tests, files, commands, events, error codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from conductor import errors
from conductor.audit.verify import EVENTS, SEAL_EVENTS
from conductor.cli.main import conductor
from conductor.errors import ApiError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("decisions/*.md"))]
HISTORY = DOCS / "log.md"
"""Tells what was, so that it may name what is no more."""

each_guide = pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
_COMMAND = re.compile(r"(?<![\w/`-])(?:\.venv/bin/)?conductor((?: [a-z][a-z-]*+(?!\d))++)(?! v1)")
"""Not what signatures are made for: `conductor approval v1`."""


@each_guide
def test_the_tests_that_a_guide_names_are_there(guide: Path) -> None:
    named = set(re.findall(r"`((?:build/)?test_[a-z_]+)`", guide.read_text()))
    here = {path.stem for path in (ROOT / "tests" / "appliance").glob("test_*.py")}
    here |= {f"build/{path.stem}" for path in (ROOT / "tests" / "build").glob("test_*.py")}
    assert named <= here or guide == HISTORY


@each_guide
def test_what_a_guide_links_to_is_there(guide: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", guide.read_text())
    assert [link for link in links if not (guide.parent / link).exists()] == []


@each_guide
def test_the_commands_that_a_guide_shows_are_there(guide: Path) -> None:
    unknown = [shown for shown in _shown(guide.read_text()) if not _known(shown)]
    assert unknown == []


def _shown(text: str) -> Iterator[list[str]]:
    """Commands in indented lines and fences, and in spans of code, as lists of words."""
    spans = re.findall(r"`([^`\n]+)`", text)
    lines = [line for line in text.splitlines() if re.match(r"( {4}|\.venv/bin/)", line)]
    for part in (*spans, *lines):
        for match in _COMMAND.finditer(part.lstrip(" ")):
            if match.start() == 0:
                yield match[1].split()


def _known(words: list[str]) -> bool:
    command: click.Command = conductor
    for word in words:
        if not isinstance(command, click.Group):
            return True  # the rest are its arguments
        found = command.commands.get(word)
        if found is None:
            return False
        command = found
    return True


def test_a_command_that_is_not_there_would_be_seen() -> None:
    assert not _known(["policy", "bless"]) and _known(["audit", "query", "var"])
    assert list(_shown("see `conductor audit query DIR` and\n    conductor up\n")) == [
        ["audit", "query"],
        ["up"],
    ]


@pytest.mark.parametrize("event", (*EVENTS, *SEAL_EVENTS))
def test_every_event_of_the_audit_log_is_described(event: str) -> None:
    assert f"`{event}`" in (DOCS / "formats.md").read_text()


def _codes() -> set[str]:
    """Codes that clients can see."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    seen = [kind for kind in kinds if issubclass(kind, ApiError) and kind is not errors.ClientGone]
    return {kind.code for kind in seen if kind.code is not None}


@pytest.mark.parametrize("code", sorted(_codes()))
def test_every_error_code_is_described(code: str) -> None:
    assert f"`{code}`" in (DOCS / "formats.md").read_text()


def test_every_header_of_ours_is_described() -> None:
    rooms = [ROOT / "appliance" / "conductor" / room for room in ("api", "run")]
    text = "".join(path.read_text() for room in rooms for path in room.glob("*.py"))
    named = set(re.findall(r"x-conductor-[a-z-]+", text))
    assert "x-conductor-approval" in named
    assert [name for name in sorted(named) if name not in (DOCS / "formats.md").read_text()] == []


def test_every_way_to_ask_administrators_is_described() -> None:
    text = (ROOT / "appliance" / "conductor" / "api" / "admin.py").read_text()
    routes = re.findall(r"add_(get|post)\(\"([^\"]+)\"", text)
    shown = [f"{verb.upper()} {path.replace('{id}', 'ID')}" for verb, path in routes]
    assert len(shown) == 9
    assert [one for one in shown if f"`{one}`" not in (DOCS / "formats.md").read_text()] == []
