"""Release files: what the maker writes is what `conductor upgrade` and `install.sh` read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from conductor.errors import UpgradeError
from conductor.upgrade import release
from conductor.upgrade.layout import Box

PACKAGE = Path(__file__).parents[2] / "systemd/package"
SERIES = f"{sys.version_info[0]}.{sys.version_info[1]}"
KEY = Ed25519PrivateKey.generate()
NOT_ROOT = os.geteuid() != 0


@pytest.fixture
def releasefile(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.syspath_prepend(str(PACKAGE))
    import releasefile

    yield releasefile
    sys.modules.pop("releasefile", None)


@pytest.fixture
def file(releasefile, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    """A small release of version 2.0."""
    tree = tmp_path / "tree"
    home = tree / "opt/conductor/versions/2.0"
    (home / "bin").mkdir(parents=True)
    (home / "bin/conductor").write_text("#!/bin/sh\necho conductor, version 2.0\n")
    (home / "bin/conductor").chmod(0o755)
    (home / "share").mkdir()
    (home / "share/state-format").write_text("1\n")
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/conductor").symlink_to("/opt/conductor/current/bin/conductor")
    model = tmp_path / "model.gguf"
    model.write_bytes(b"weights")
    texts = {"install.sh": (PACKAGE / "install.sh").read_bytes()}
    out = tmp_path / "two.release"
    releasefile.write(out, releasefile.Contents("2.0", SERIES, 1, tree, texts, (model,)), KEY)
    return out


def box(tmp_path: Path) -> Box:
    root = tmp_path / "root"
    (root / "opt/conductor/versions").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / f"usr/bin/python{SERIES}").symlink_to(sys.executable)
    return Box(root)


def tampered(file: Path, name: str, data: bytes) -> Path:
    """The same file with one member changed."""
    out = file.with_name("tampered.release")
    with tarfile.open(file) as source, tarfile.open(out, "w:") as target:
        for member in source:
            content = source.extractfile(member)
            assert content is not None
            held = data if member.name == name else content.read()
            member.size = len(held)
            target.addfile(member, __import__("io").BytesIO(held))
    return out


def test_a_signed_release_is_unpacked_with_its_models(file: Path, tmp_path: Path) -> None:
    place = box(tmp_path)
    manifest = release.read(file, [KEY.public_key()])
    version = release.unpack(place, file, manifest)
    assert version.name == "2.0"
    assert version.state_format == 1
    assert os.access(version.program, os.X_OK)
    assert (place.models / "model.gguf").read_bytes() == b"weights"
    assert sorted(path.name for path in place.versions.iterdir()) == ["2.0"]


def test_the_same_tree_and_key_give_the_same_bytes(
    releasefile,
    file: Path,
    tmp_path: Path,  # type: ignore[no-untyped-def]
) -> None:
    again = tmp_path / "again.release"
    texts = {"install.sh": (PACKAGE / "install.sh").read_bytes()}
    contents = releasefile.Contents(
        "2.0", SERIES, 1, tmp_path / "tree", texts, (tmp_path / "model.gguf",)
    )
    releasefile.write(again, contents, KEY)
    assert again.read_bytes() == file.read_bytes()


def test_one_that_a_stranger_signed_is_refused(file: Path) -> None:
    with pytest.raises(UpgradeError, match="no trusted key"):
        release.read(file, [Ed25519PrivateKey.generate().public_key()])
    with pytest.raises(UpgradeError, match="no trusted key"):
        release.read(file, [])


def test_a_changed_manifest_is_refused(file: Path) -> None:
    with tarfile.open(file) as tar:
        content = tar.extractfile("manifest.json")
        assert content is not None
        facts = json.loads(content.read())
    facts["version"] = "3.0"
    with pytest.raises(UpgradeError, match="no trusted key"):
        release.read(
            tampered(file, "manifest.json", json.dumps(facts).encode()), [KEY.public_key()]
        )


@pytest.mark.parametrize("name", ["tree.tar.gz", "models/model.gguf", "install.sh"])
def test_a_changed_member_is_refused_and_leaves_nothing(
    name: str, file: Path, tmp_path: Path
) -> None:
    place = box(tmp_path)
    manifest = release.read(file, [KEY.public_key()])
    with pytest.raises(UpgradeError):
        release.unpack(place, tampered(file, name, b"other"), manifest)
    assert list(place.versions.iterdir()) == []
    assert not (place.models / "model.gguf").exists()


def test_something_else_is_no_release(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"not a tar file")
    with pytest.raises(UpgradeError, match="no release file"):
        release.read(other, [KEY.public_key()])


def install(file: Path, root: Path, key: Ed25519PrivateKey) -> subprocess.CompletedProcess[str]:
    public = file.with_name("maker.pub")
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    argv = ["sh", str(PACKAGE / "install.sh"), "--bundle", str(file), "--key", str(public)]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=60, env={**os.environ, "ROOT": str(root)}
    )


@pytest.mark.skipif(NOT_ROOT or not shutil.which("openssl"), reason="needs root and openssl")
def test_the_installer_puts_it_into_an_empty_root(file: Path, tmp_path: Path) -> None:
    place = box(tmp_path)
    done = install(file, place.root, KEY)
    assert done.returncode == 0, done.stderr
    assert place.current.readlink() == Path("/opt/conductor/versions/2.0")
    assert (place.root / "usr/bin/conductor").is_symlink()
    assert (place.models / "model.gguf").read_bytes() == b"weights"
    assert [path.name for path in place.release_keys.iterdir()] == ["maker.pub"]
    assert not list(place.home.glob(".install.*"))


@pytest.mark.skipif(NOT_ROOT or not shutil.which("openssl"), reason="needs root and openssl")
@pytest.mark.parametrize(
    "name", ["tree.tar.gz", "models/model.gguf", "install.sh", "manifest.json"]
)
def test_the_installer_refuses_what_was_not_signed(name: str, file: Path, tmp_path: Path) -> None:
    place = box(tmp_path)
    done = install(tampered(file, name, b"other"), place.root, KEY)
    assert done.returncode != 0
    assert not place.current.exists()
    assert not list(place.versions.iterdir())
