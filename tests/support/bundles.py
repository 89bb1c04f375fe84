"""Bundles on disk for tests, whole ones and forged ones, without the build stage."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.planner.manifest import EncoderId, FileFact, Manifest, Provenance, encode
from conductor.planner.signature import sign

KEY = Ed25519PrivateKey.generate()
TRUSTED = (KEY.public_key(),)
ENCODER = EncoderId("a" * 64, "b" * 64)
PROVENANCE = Provenance(
    recipe={"seed": 3, "pools": {"size": [2, 6]}, "rate": 0.0003},
    data={"reasoning/outcomes.csv.gz": "c" * 64},
    seed=3,
    versions={"torch": "2.13.0+cpu"},
    summary={"reward": 0.81, "minutes": 12},
)
FILES: Mapping[str, bytes] = {
    "pocket/decoder.onnx": b"weights" * 20,
    "pocket/cards.npz": b"",
    "pocket/seen.bin": bytes(range(16)),
    "plan/limits.json": b'{"max_steps":5}\n',
    "report/report.json": b'{"rows":[]}',
    "report/curves/reward.png": b"\x89PNG",
}


def facts(files: Mapping[str, bytes]) -> dict[str, FileFact]:
    return {
        path: FileFact(hashlib.sha256(data).hexdigest(), len(data)) for path, data in files.items()
    }


def manifest(files: Mapping[str, bytes] = FILES, **changes: Any) -> Manifest:
    fields = {"created": "2026-11-30T12:00:00Z", "features": 1, "encoder": ENCODER}
    return Manifest(**{**fields, "provenance": PROVENANCE, "files": facts(files), **changes})


def write(folder: Path, files: Mapping[str, bytes] = FILES, **changes: Any) -> Path:
    """A whole bundle, with `changes` to its manifest's fields."""
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    put_signed(folder, encode(manifest(files, **changes)))
    return folder


def put_signed(folder: Path, data: bytes, key: Ed25519PrivateKey = KEY) -> None:
    """Any bytes in the manifest's place, rightly signed."""
    (folder / "manifest.json").write_bytes(data)
    (folder / "manifest.sig").write_bytes(sign(key, data))


def spell(record: Any) -> bytes:
    """Any JSON, spelled as a manifest has to be."""
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(record, option=options)


def changed(change: Callable[[Any], object]) -> bytes:
    """A right manifest after `change` has been at its decoded form."""
    record = orjson.loads(encode(manifest()))
    change(record)
    return spell(record)
