"""A release file: everything of one version, for a box without a network.

A plain tar file, its members in this order:

    manifest.json     what it is, and size and sha256 of every other member
    manifest.sig      64 bytes: Ed25519 (RFC 8032) over manifest.json, as openssl reads it
    install.sh  sbom.cdx.json  licences.txt
    tree.tar.gz       opt/conductor/versions/V/... and usr/..., of `systemd/package/tree.sh`
    models/FILE       model files, by the names of the catalogue

The signature counts before anything of the manifest is believed. The large members are unpacked
while they are hashed, into a folder that counts for nothing until every hash was right.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from conductor.errors import UpgradeError
from conductor.upgrade.layout import Box
from conductor.upgrade.versions import NAME, Version

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
TREE = "tree.tar.gz"
KIND = "conductor release 1"
"""Inside what is signed, so that nothing else signed with the key can pass for a release."""

_MAX_MANIFEST_BYTES = 256 * 1024
_MODEL = re.compile(r"models/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SERIES = re.compile(r"3\.[0-9]{1,2}")
_PIECE = 1024 * 1024
_FRESH = "take a fresh copy of the release"


@dataclass(frozen=True)
class FileFact:
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a release says of itself. `python` is the interpreter's series that it needs; `unpacked`
    the bytes that its tree takes on disk."""

    version: str
    python: str
    state_format: int
    unpacked: int
    files: Mapping[str, FileFact]


def read(file: Path, keys: Sequence[Ed25519PublicKey]) -> Manifest:
    """The manifest, once one of the keys has proven to have signed it. Raises `UpgradeError`."""
    with _opened(file) as members:
        manifest = _small(members, MANIFEST, _MAX_MANIFEST_BYTES)
        signature = _small(members, SIGNATURE, 64)
    if not any(_signed(key, signature, manifest) for key in keys):
        raise UpgradeError(
            "no trusted key has signed this release: compare the maker's public key with theirs, "
            "then put it into release-keys/ beside the configuration, or name it with --key"
        )
    return _decoded(manifest)


def unpack(box: Box, file: Path, manifest: Manifest) -> Version:
    """Put the version beside those that are there, and its models beside theirs.

    Raises `UpgradeError` when a member is not what was signed; then nothing of it is left.
    """
    target = box.versions / manifest.version
    new = box.versions / f".new-{manifest.version}"
    shutil.rmtree(new, ignore_errors=True)
    box.versions.mkdir(mode=0o755, parents=True, exist_ok=True)
    new.mkdir(mode=0o700)  # nobody starts anything in there before its hash is known
    models = [name for name in manifest.files if _MODEL.fullmatch(name)]
    try:
        with _opened(file) as members:
            for name, content in members:
                if name not in (MANIFEST, SIGNATURE):
                    _take(name, content, manifest, new)
        for name in models:
            _publish(new / name, box.models)
        (new / "tree/opt/conductor/versions" / manifest.version).rename(target)
    except (OSError, tarfile.TarError):
        raise UpgradeError(f"the release cannot be unpacked: is the disk full? {_FRESH}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return Version(target)


def _take(name: str, content: IO[bytes], manifest: Manifest, new: Path) -> None:
    fact = manifest.files.get(name)
    if fact is None:
        raise UpgradeError(f"{name[:80]!a} is not in the manifest: {_FRESH}")
    if name == TREE:
        (new / "tree").mkdir()
        found = _through_tar(content, new / "tree")
    elif _MODEL.fullmatch(name):
        (new / "models").mkdir(exist_ok=True)
        with (new / name).open("wb") as file:
            found = _hashed(content, file)
    else:
        found = _hashed(content, None)
    if found != fact:
        raise UpgradeError(f"{name} is not what was signed: {_FRESH}")


def _through_tar(content: IO[bytes], target: Path) -> FileFact:
    """GNU tar unpacks: it refuses names that lead out, whatever Python this is."""
    argv = ["tar", "-xzf", "-", "--no-same-owner", "-C", str(target)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as tar:  # noqa: S603
        assert tar.stdin is not None
        try:
            found = _hashed(content, tar.stdin)
        except BrokenPipeError:
            raise UpgradeError(f"{TREE} is damaged: {_FRESH}") from None
        tar.stdin.close()
    if tar.returncode:
        raise UpgradeError(f"{TREE} cannot be unpacked: is the disk full? {_FRESH}")
    return found


def _hashed(content: IO[bytes], copy: IO[bytes] | None) -> FileFact:
    size, digest = 0, hashlib.sha256()
    while piece := content.read(_PIECE):
        digest.update(piece)
        size += len(piece)
        if copy is not None:
            copy.write(piece)
    return FileFact(size, digest.hexdigest())


def _publish(file: Path, models: Path) -> None:
    """Model files are known by hash: one that is there under its name stays."""
    models.mkdir(mode=0o750, parents=True, exist_ok=True)
    file.chmod(0o640)
    place = models / file.name
    if place.exists():
        return
    shutil.chown(file, group=models.stat().st_gid)
    new = models / f".{file.name}.new"
    shutil.move(file, new)
    new.replace(place)


@contextmanager
def _opened(file: Path) -> Iterator[Iterator[tuple[str, IO[bytes]]]]:
    try:
        with tarfile.open(file, "r:") as tar:
            yield _members(tar)
    except FileNotFoundError:
        raise UpgradeError(f"{file} is not there") from None
    except tarfile.TarError:
        raise UpgradeError(f"{file} is no release file, or damaged: {_FRESH}") from None


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    for member in tar:
        content = tar.extractfile(member) if member.isreg() else None
        if content is None:
            raise UpgradeError(f"{member.name[:80]!a} is no plain file: {_FRESH}")
        yield member.name, content


def _small(members: Iterator[tuple[str, IO[bytes]]], name: str, limit: int) -> bytes:
    found, content = next(members, ("", None))
    data = content.read(limit + 1) if content is not None else b""
    if found != name or len(data) > limit:
        raise UpgradeError(f"{name} is not where it must be: this is no release file, or damaged")
    return data


def _signed(key: Ed25519PublicKey, signature: bytes, manifest: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, manifest)
    except InvalidSignature:
        return False
    return True


def _decoded(data: bytes) -> Manifest:
    """It was signed: whatever is wrong in it is its maker's mistake, or another format."""
    try:
        facts: dict[str, Any] = json.loads(data)
        kind, version, python = facts["kind"], str(facts["version"]), str(facts["python"])
        files = {
            str(name): FileFact(int(fact["size"]), str(fact["sha256"]))
            for name, fact in facts["files"].items()
        }
        manifest = Manifest(
            version, python, int(facts["state_format"]), int(facts["unpacked"]), files
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UpgradeError("the manifest of this release cannot be understood") from None
    if kind != KIND or not NAME.fullmatch(version) or not _SERIES.fullmatch(python):
        raise UpgradeError("this is no release that this version can install")
    if TREE not in files:
        raise UpgradeError("this release holds no program")
    return manifest
