"""What is inside a version: a bill of materials (CycloneDX 1.6, JSON), and everybody's licences.

Both are read from the packages that were laid out, not from the lock: they tell what is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

NAMES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "ThirdPartyNotices*")


def packages(site: Path) -> list[PathDistribution]:
    """Every Python package there, by name."""
    found = (PathDistribution(folder) for folder in site.glob("*.dist-info"))
    return sorted(found, key=lambda one: _name(one).lower())


def bill(version: str, site: Path, models: Sequence[tuple[str, str, str]]) -> bytes:
    """The bill of materials. `models` are (name, sha256, licence)."""
    components = [_component(one) for one in packages(site)]
    components += [
        {
            "type": "machine-learning-model",
            "name": name,
            "hashes": [{"alg": "SHA-256", "content": sha256}],
            "licenses": [{"license": {"name": licence}}],
        }
        for name, sha256, licence in models
    ]
    ours = {"type": "application", "name": "conductor-appliance", "version": version}
    told = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours},
        "components": components,
    }
    return json.dumps(told, indent=1).encode() + b"\n"


def licences(site: Path) -> bytes:
    """Name, version and licence texts of every package, in one file."""
    parts = []
    for one in packages(site):
        head = f"{_name(one)} {one.version}: {_licence(one) or 'see below'}"
        texts = [file.read_text(errors="replace").strip() for file in _texts(one)]
        parts.append("\n\n".join([f"{'=' * len(head)}\n{head}\n{'=' * len(head)}", *texts]))
    return "\n\n\n".join(parts).encode() + b"\n"


def _component(one: PathDistribution) -> dict[str, Any]:
    name = _name(one)
    record = one.read_text("RECORD") or ""
    fact: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": one.version,
        "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{one.version}",
        # Of the package's own list of its files with their hashes.
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(record.encode()).hexdigest()}],
    }
    licence = _licence(one)
    return {**fact, "licenses": [{"license": {"name": licence}}]} if licence else fact


def _name(one: PathDistribution) -> str:
    return str(one.metadata["Name"])


def _licence(one: PathDistribution) -> str:
    """As short as the package says it: an expression, a classifier, or its first line."""
    head = HeaderParser().parsestr(one.read_text("METADATA") or "")
    classified = [
        value.rsplit(" :: ", 1)[-1]
        for value in head.get_all("Classifier", [])
        if value.startswith("License :: ")
    ]
    said = head.get("License-Expression") or "; ".join(classified) or head.get("License") or ""
    return str(said).strip().split("\n")[0][:120]


def _texts(one: PathDistribution) -> Iterator[Path]:
    folder = Path(str(one._path))  # type: ignore[attr-defined]
    seen = {path for pattern in NAMES for path in folder.rglob(pattern) if path.is_file()}
    yield from sorted(seen)
