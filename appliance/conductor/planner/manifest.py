"""What a bundle says of itself, and its one spelling as bytes. Pure: no files, no keys.

A manifest is JSON with sorted keys, two spaces a level and one newline at its end. Bytes that are
not exactly that are refused, which rules out duplicate keys, numbers that two readers take
differently, and text after the end, without a rule for each.

    schema         version of this form
    kind           "pocket" or "lm" (`kinds.py`)
    created        when, in UTC: 2026-11-30T12:00:00Z
    plan_language  version of the language that it writes
    files          path -> sha256 and size in bytes, of everything but manifest and signature
    provenance     recipe (any JSON), data (name -> sha256), seed, versions, summary

What it was made for, of a pocket conductor:

    features       version of the features that it was trained on
    encoder        sha256 of the sentence encoder's `onnx` and `tokenizer`, files of the catalogue

and of a language model:

    prompt         `version` of the prompt that it was trained on, and `digest` of its fixed part
    precision      how weights are stored: float32, bfloat16, float16, int8, int4, fp8

Left out: reading a bundle from disk and checking its signature (`bundle.py`); whether the files of
a language model fit each other (`lm_parts.py`).
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
from conductor.planner.kinds import KINDS, LM, MAX_TOTAL_BYTES, POCKET, Kind

SCHEMA = 1

MAX_MANIFEST_BYTES = 512 * 1024
MAX_FILES = 2048
PRECISIONS = ("float32", "bfloat16", "float16", "int8", "int4", "fp8")

_MAX_DEPTH = 64
_ALL = ("schema", "kind", "created", "plan_language", "files", "provenance")
_OF_KIND = {POCKET.name: ("features", "encoder"), LM.name: ("prompt", "precision")}
_SHA256 = re.compile(r"[0-9a-f]{64}")
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
    KIND = "kind"  # of another kind than is asked for
    FEATURES = "features"  # made for other features, or another prompt
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
class PromptId:
    """The prompt that a language model was trained on (`plan.prompt.Prompter.digest`)."""

    version: int
    digest: str


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
    """One bundle, described. `files` maps paths with `/`, relative to the bundle. Exactly the
    fields of its kind are there, those of the other kind are None."""

    created: str
    provenance: Provenance
    files: Mapping[str, FileFact]
    plan_language: int = LANGUAGE_VERSION
    kind: str = POCKET.name
    features: int | None = None
    encoder: EncoderId | None = None
    prompt: PromptId | None = None
    precision: str | None = None

    def facts(self) -> dict[str, Any]:
        """All that it says, without the fields of the other kind."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def encode(manifest: Manifest) -> bytes:
    """The one spelling. Raises `BundleError` (`manifest`) when `decode` would refuse it."""
    try:
        record = {"schema": SCHEMA, **manifest.facts()}
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
    kind = KINDS.get(name) if isinstance(name := record.get("kind"), str) else None
    if kind is None:
        raise _bad(f"kind must be one of {', '.join(KINDS)}")
    fields = _fields(record, "the manifest", (*_ALL, *_OF_KIND[kind.name]))
    return Manifest(
        kind=kind.name,
        created=_text(fields["created"], "created", _CREATED),
        plan_language=_count(fields["plan_language"], "plan_language"),
        provenance=_provenance(fields["provenance"]),
        files=_files(fields["files"], kind),
        **(_made_for_lm(fields) if kind is LM else _made_for_pocket(fields)),
    )


def _made_for_pocket(fields: dict[str, Any]) -> dict[str, Any]:
    encoder = _fields(fields["encoder"], "encoder", ("onnx", "tokenizer"))
    return {
        "features": _count(fields["features"], "features"),
        "encoder": EncoderId(
            _text(encoder["onnx"], "encoder.onnx", _SHA256),
            _text(encoder["tokenizer"], "encoder.tokenizer", _SHA256),
        ),
    }


def _made_for_lm(fields: dict[str, Any]) -> dict[str, Any]:
    prompt = _fields(fields["prompt"], "prompt", ("version", "digest"))
    if fields["precision"] not in PRECISIONS:
        raise _bad(f"precision must be one of {', '.join(PRECISIONS)}")
    return {
        "prompt": PromptId(
            _count(prompt["version"], "prompt.version"),
            _text(prompt["digest"], "prompt.digest", _SHA256),
        ),
        "precision": fields["precision"],
    }


def _files(value: Any, kind: Kind) -> dict[str, FileFact]:
    files = {}
    for path, entry in _object(value, "files").items():
        if not kind.is_path(path):
            raise _bad(f"a file's path must lie in {', '.join(kind.folders)} and be plain ASCII")
        facts = _fields(entry, path, ("sha256", "size"))
        files[path] = FileFact(
            _text(facts["sha256"], f"sha256 of {path}", _SHA256),
            _count(facts["size"], f"size of {path}"),
        )
    if lacking := kind.lacks(files):
        raise _bad(f"it names no {lacking}")
    sizes = {path: fact.size for path, fact in files.items()}
    if len(files) > MAX_FILES or kind.too_large(sizes):
        most = f"{MAX_FILES} files or, weights aside, {MAX_TOTAL_BYTES} bytes"
        raise _bad(f"more than {most} are no {kind.name} bundle")
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
