"""Writes a release file: what `conductor upgrade` and `install.sh` read. The format is told in
`appliance/conductor/upgrade/release.py`.

The same tree and key give the same bytes: times and owners are fixed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KIND = "conductor release 1"
TREE = "tree.tar.gz"
_PIECE = 1024 * 1024


@dataclass(frozen=True)
class Contents:
    """What goes in. `tree` holds `opt/` and `usr/`; `texts` are small members by name; `models` are
    model files."""

    version: str
    python: str
    state_format: int
    tree: Path
    texts: Mapping[str, bytes]
    models: tuple[Path, ...] = ()


def write(out: Path, contents: Contents, key: Ed25519PrivateKey, level: int = 6) -> None:
    """Write the release file `out`, whole or not at all."""
    packed = out.with_suffix(".tree")
    new = out.with_suffix(".new")
    try:
        unpacked = _pack(contents.tree, packed, level)
        files = {TREE: packed, **{f"models/{path.name}": path for path in contents.models}}
        facts = {name: _fact(data) for name, data in contents.texts.items()}
        facts |= {name: _file_fact(path) for name, path in files.items()}
        manifest = _manifest(contents, unpacked, facts)
        with tarfile.open(new, "w:", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, "manifest.json", manifest)
            _add(tar, "manifest.sig", key.sign(manifest))
            for name, data in contents.texts.items():
                _add(tar, name, data, 0o755 if name.endswith(".sh") else 0o644)
            for name, path in files.items():
                tar.add(path, name, recursive=False, filter=_plain)
        new.replace(out)
    finally:
        packed.unlink(missing_ok=True)
        new.unlink(missing_ok=True)


def _pack(tree: Path, target: Path, level: int) -> int:
    """The tree as a compressed tar file; how many bytes it takes unpacked."""
    with target.open("wb") as raw, gzip.GzipFile("", "wb", level, raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(tree.rglob("*")):
                tar.add(path, str(path.relative_to(tree)), recursive=False, filter=_plain)
    return sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir())


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, at the time of the sources; a hard link becomes a file by itself."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    return member


def _manifest(contents: Contents, unpacked: int, facts: Mapping[str, object]) -> bytes:
    told = {
        "kind": KIND,
        "version": contents.version,
        "python": contents.python,
        "state_format": contents.state_format,
        "unpacked": unpacked,
        "files": facts,
    }
    return json.dumps(told, indent=1, sort_keys=True).encode() + b"\n"


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    tar.addfile(_plain(member), io.BytesIO(data))


def _fact(data: bytes) -> dict[str, object]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _file_fact(path: Path) -> dict[str, object]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return {"size": path.stat().st_size, "sha256": digest.hexdigest()}
