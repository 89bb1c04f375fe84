"""What a bundle says of itself, and its one spelling as bytes. Pure: no files, no keys.

A manifest is JSON with sorted keys, two spaces a level and one newline at its end. Bytes that are
not exactly that are refused, which rules out duplicate keys, numbers that two readers take
differently, and text after the end, without a rule for each.

    schema         version of this form
    kind           "pocket"
    created        when, in UTC: 2026-11-30T12:00:00Z
    plan_language  version of the language that it writes
    features       version of the features that it was trained on
    encoder        sha256 of the sentence encoder's `onnx` and `tokenizer`, files of the catalogue
    files          path -> sha256 and size in bytes, of everything but manifest and signature
    provenance     recipe (any JSON), data (name -> sha256), seed, versions, summary

Left out: reading a bundle from disk and checking its signature (`bundle.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import orjson

from conductor.errors import BundleError
from conductor.plan.language import LANGUAGE_VERSION

SCHEMA = 1

KIND = "pocket"
FOLDERS = ("pocket", "plan", "report")
REQUIRED = ("pocket/decoder.onnx", "pocket/seen.bin")
"""Without the second nobody can tell which prompts may be used to judge it."""

MAX_MANIFEST_BYTES = 256 * 1024
MAX_FILES = 256
MAX_TOTAL_BYTES = 64 * 1024 * 1024
"""A bundle is held in memory while it is opened; the planner process has 300 MB for everything."""

_MAX_DEPTH = 64
_FIELDS = (
    "schema",
    "kind",
    "created",
    "plan_language",
    "features",
    "encoder",
    "files",
    "provenance",
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})(?:/[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}){{1,3}}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/+-]{0,99}")
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


class Refusal(StrEnum):
    """Every reason that a `BundleError` carries."""

    ABSENT = "absent"  # no bundle there
    UNREADABLE = "unreadable"  # the system does not let us read it
    UNSIGNED = "unsigned"  # a manifest without a signature, or with one that is none
    KEY = "key"  # signed by somebody who is not trusted here
    SIGNATURE = "signature"  # the manifest is not what was signed
    MANIFEST = "manifest"  # signed, but no manifest
    SCHEMA = "schema"  # a manifest of another version
    LANGUAGE = "language"  # made for another plan language
    FEATURES = "features"  # made for other features
    ENCODER = "encoder"  # made for an encoder or tokenizer that is not here
    MISSING = "missing"  # a file that the manifest names
    EXTRA = "extra"  # something that it does not name
    SPECIAL = "special"  # a link, a pipe, a device
    TAMPERED = "tampered"  # a file's size or hash
    WRITE = "write"  # it cannot be written


@dataclass(frozen=True, order=True)
class EncoderId:
    """The two catalogue files that a conductor was trained with, by lower-case hex sha256."""

    onnx: str
    tokenizer: str


@dataclass(frozen=True)
class FileFact:
    """What the bytes of one file must be."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Provenance:
    """What it was made from: enough to make it again."""

    recipe: Mapping[str, Any]
    data: Mapping[str, str]
    """sha256 of every file of outcomes, by name."""
    seed: int
    versions: Mapping[str, str]
    """Of the software that took part, by package."""
    summary: Mapping[str, float | str]
    """What training printed at its end."""


@dataclass(frozen=True)
class Manifest:
    """One bundle, described. `files` maps paths with `/`, relative to the bundle."""

    created: str
    features: int
    encoder: EncoderId
    provenance: Provenance
    files: Mapping[str, FileFact]
    plan_language: int = LANGUAGE_VERSION
    kind: str = KIND


def encode(manifest: Manifest) -> bytes:
    """The one spelling. Raises `BundleError` (`manifest`) when `decode` would refuse it."""
    try:
        record = {"schema": SCHEMA, **asdict(manifest)}
        # Through the standard library first: orjson would write NaN as null without a word.
        data = _spell(json.loads(json.dumps(record, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        raise _bad("recipe and summary must be plain JSON, with finite numbers") from None
    decode(data)
    return data


def decode(data: bytes) -> Manifest:
    """Read a manifest. Raises `BundleError` (`manifest` or `schema`)."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise _bad(f"it is longer than {MAX_MANIFEST_BYTES} bytes")
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise _bad("it is no JSON") from None
    if not isinstance(record, dict):
        raise _bad("it is no JSON object")
    if type(record.get("schema")) is not int or record["schema"] != SCHEMA:
        raise BundleError(
            Refusal.SCHEMA,
            f"the manifest has another schema than {SCHEMA}, which this release reads: "
            "use the release it was built with, or build it again",
        )
    _exact(record, data)
    return _manifest(record)


def _exact(record: dict[str, Any], data: bytes) -> None:
    try:
        exact = _depth_is_fine(record) and _spell(record) == data
    except TypeError:  # orjson's own limits
        exact = False
    if not exact:
        raise _bad("it is not in its one spelling: a key twice, other spaces, or another order")


def _depth_is_fine(record: dict[str, Any]) -> bool:
    level: list[Any] = [record]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for value in level
            if isinstance(value, (dict, list))
            for child in (value.values() if isinstance(value, dict) else value)
        ]
    return not level


def _spell(record: dict[str, Any]) -> bytes:
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(record, option=options)


def _manifest(record: dict[str, Any]) -> Manifest:
    fields = _fields(record, "the manifest", _FIELDS)
    if fields["kind"] != KIND:
        raise _bad(f"kind must be {KIND!r}")
    encoder = _fields(fields["encoder"], "encoder", ("onnx", "tokenizer"))
    return Manifest(
        kind=KIND,
        created=_text(fields["created"], "created", _CREATED),
        plan_language=_count(fields["plan_language"], "plan_language"),
        features=_count(fields["features"], "features"),
        encoder=EncoderId(
            _text(encoder["onnx"], "encoder.onnx", _SHA256),
            _text(encoder["tokenizer"], "encoder.tokenizer", _SHA256),
        ),
        provenance=_provenance(fields["provenance"]),
        files=_files(fields["files"]),
    )


def _files(value: Any) -> dict[str, FileFact]:
    files = {}
    for path, entry in _object(value, "files").items():
        if not _PATH.fullmatch(path):
            raise _bad(f"a file's path must lie in {', '.join(FOLDERS)} and be plain ASCII")
        facts = _fields(entry, path, ("sha256", "size"))
        files[path] = FileFact(
            _text(facts["sha256"], f"sha256 of {path}", _SHA256),
            _count(facts["size"], f"size of {path}"),
        )
    for path in REQUIRED:
        if path not in files:
            raise _bad(f"it names no {path}")
    if len(files) > MAX_FILES or sum(fact.size for fact in files.values()) > MAX_TOTAL_BYTES:
        raise _bad(f"more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes are no {KIND} bundle")
    return files


def _provenance(value: Any) -> Provenance:
    fields = _fields(value, "provenance", ("recipe", "data", "seed", "versions", "summary"))
    summary = _object(fields["summary"], "summary")
    if not all(_NAME.fullmatch(name) and _is_plain(entry) for name, entry in summary.items()):
        raise _bad("summary holds numbers and short plain texts under plain names, nothing else")
    return Provenance(
        recipe=_object(fields["recipe"], "recipe"),
        data=_texts(fields["data"], "data", _SHA256),
        seed=_count(fields["seed"], "seed"),
        versions=_texts(fields["versions"], "versions", _NAME),
        summary=summary,
    )


def _is_plain(entry: Any) -> bool:
    """Fit to be shown on a terminal as it stands."""
    return type(entry) in (int, float) or (isinstance(entry, str) and bool(_NAME.fullmatch(entry)))


def _texts(value: Any, what: str, pattern: re.Pattern[str]) -> dict[str, str]:
    texts = _object(value, what)
    if not all(_NAME.fullmatch(name) for name in texts):
        raise _bad(f"a name in {what} is no plain name")
    return {name: _text(entry, what, pattern) for name, entry in texts.items()}


def _fields(value: Any, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    fields = _object(value, what)
    if fields.keys() != set(names):
        raise _bad(f"{what} must have exactly the fields {', '.join(names)}")
    return fields


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _bad(f"{what} must be an object")
    return value


def _text(value: Any, what: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _bad(f"{what} does not have its form")
    return value


def _count(value: Any, what: str) -> int:
    # `type() is` and not isinstance: true is an int to Python.
    if type(value) is not int or value < 0:
        raise _bad(f"{what} must be a whole number, 0 or more")
    return value


def _bad(message: str) -> BundleError:
    return BundleError(Refusal.MANIFEST, f"the manifest cannot be used: {message}")
