"""The one strict YAML reader: bytes in, positions and faults out, no guessing.

Two passes over PyYAML. The first, over events, refuses what only events show: anchors, tags,
directives, a second document, depth. The second, over nodes, refuses duplicate, merge and
non-string keys. What the keys may be is then asked by whoever reads the file, through the
`values.Section` that `parse` returns:

    faults = Faults()
    root = parse(data, "workers.yaml", faults)
    for item in root.items("workers"):
        worker = item.mapping()
        name = worker.text("id")
        slots = worker.integer("max_in_flight", 8, low=1, high=1024)
        worker.done()          # everything not asked for is an unknown key
    root.done()
    faults.raise_any()         # one ConfigError with every fault

Left out on purpose: YAML's own types. Scalars stay text until a reader asks for a kind.
Messages never repeat what stands in the file, since it may be a secret in the wrong place.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from conductor.strictyaml.faults import Faults, Position
from conductor.strictyaml.scalars import STRING_TAG
from conductor.strictyaml.values import Section

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE_TAG = "tag:yaml.org,2002:merge"

# Control characters, byte order marks, bidirectional controls, line breaks that editors do not
# count as lines, tag characters: a reviewer would see another file than the one that is loaded.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069"
    "\ufeff\ufffe\uffff\U000e0000-\U000e007f]"
)


@dataclass(frozen=True)
class Document:
    """One file as it was read. `sha256` is over its exact bytes, in hex."""

    file: str
    sha256: str
    root: Section
    data: bytes = b""
    """The bytes themselves; empty when they could not be read."""


def read(path: Path, faults: Faults) -> Document:
    """Read a file of at most `MAX_BYTES`. What is wrong goes to `faults`; the root then is empty
    and asks for nothing more."""
    data = _bytes_of(path, faults)
    if data is not None:
        return document(data, str(path), faults)
    return Document(
        str(path), hashlib.sha256(b"").hexdigest(), Section.unreadable(str(path), faults)
    )


def document(data: bytes, file: str, faults: Faults) -> Document:
    """A file whose bytes are here already. `file` only names it in positions."""
    return Document(file, hashlib.sha256(data).hexdigest(), parse(data, file, faults), data)


def parse(data: bytes, file: str, faults: Faults) -> Section:
    """The top-level mapping of a YAML document. `file` only names it in positions."""
    before = len(faults)
    text = _decode(data, file, faults)
    root = None if text is None else _compose(text, file, faults)
    if len(faults) > before:
        return Section.unreadable(file, faults)
    if not isinstance(root, yaml.MappingNode):
        position = _position(file, root.start_mark if root else None)
        faults.add(position, "wrong-kind", "the file must be a mapping of keys to values")
        return Section.unreadable(file, faults)
    _refuse_keys(root, file, faults)
    return Section.of(root, file, faults)


def _bytes_of(path: Path, faults: Faults) -> bytes | None:
    start = Position(str(path), 1, 1)
    try:
        # Opening a pipe would wait for its writer.
        if not stat.S_ISREG(path.stat().st_mode):
            faults.add(start, "unreadable", "not a regular file")
            return None
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        faults.add(start, "unreadable", "no such file")
    except OSError:
        faults.add(start, "unreadable", "cannot be opened: check owner and mode")
    return None


def _decode(data: bytes, file: str, faults: Faults) -> str | None:
    """Strict UTF-8 with no hidden characters, or None with a fault."""
    if len(data) > MAX_BYTES:
        faults.add(Position(file, 1, 1), "too-large", f"over {MAX_BYTES} bytes")
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8")
        faults.add(_end_of(good, file), "bad-encoding", "not UTF-8: save the file as UTF-8")
        return None
    for found in _HIDDEN.finditer(text):
        faults.add(
            _end_of(text[: found.start()], file),
            "hidden-character",
            f"U+{ord(found.group()):04X} is invisible in an editor: remove it",
        )
        return None
    return text


def _compose(text: str, file: str, faults: Faults) -> Any:
    before = len(faults)
    try:
        _refuse_events(text, file, faults)
        return yaml.compose(text, Loader=_LOADER) if len(faults) == before else None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two: PyYAML's own scanner, used without libyaml, on an escape out of range.
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        message = "not readable as YAML from here: check indentation, quotes and colons"
        faults.add(_position(file, mark), "bad-yaml", message)
        return None


def _refuse_events(text: str, file: str, faults: Faults) -> None:
    depth = 0
    documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        for code, message in _event_faults(event):
            faults.add(_position(file, event.start_mark), code, message)
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if documents > 1 or depth > MAX_DEPTH:
            message = "only one document" if documents > 1 else f"at most {MAX_DEPTH} levels deep"
            code = "second-document" if documents > 1 else "too-deep"
            faults.add(_position(file, event.start_mark), code, f"{message} may stand in a file")
            return


def _event_faults(event: Any) -> Iterator[tuple[str, str]]:
    if getattr(event, "anchor", None) is not None:
        yield "anchor", "anchors and aliases are not read: write the value out"
    if isinstance(event, yaml.DocumentStartEvent):
        if event.version is not None or event.tags:
            yield "directive", "directives (%YAML, %TAG) are not read: remove the line"
    elif getattr(event, "tag", None) is not None:
        yield "tag", "tags (!...) are not read: remove it"


def _refuse_keys(node: Any, file: str, faults: Faults) -> None:
    """Keys that no schema could allow. Recursion is safe: the first pass bounded the depth."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_keys(item, file, faults)
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            _refuse_key(key, seen, file, faults)
            _refuse_keys(value, file, faults)


def _refuse_key(key: Any, seen: dict[str, int], file: str, faults: Faults) -> None:
    position = _position(file, key.start_mark)
    if not isinstance(key, yaml.ScalarNode):
        faults.add(position, "wrong-kind", "a key must be a word, no list or mapping")
    elif key.tag == _MERGE_TAG:
        faults.add(position, "merge-key", "merge keys (<<) are not read: write the keys out")
    elif key.tag != STRING_TAG:
        faults.add(position, "quote-it", "YAML reads this key as no string: put it in quotes")
    elif key.value in seen:
        first = seen[key.value]
        faults.add(position, "duplicate-key", f"this key stands already on line {first}")
    else:
        seen[key.value] = position.line


def _position(file: str, mark: Any) -> Position:
    return Position(file, 1, 1) if mark is None else Position.of(file, mark)


def _end_of(text: str, file: str) -> Position:
    # YAML counts CR, LF and CRLF as one line break each.
    lines = re.split("\r\n|\r|\n", text)
    return Position(file, len(lines), len(lines[-1]) + 1)
