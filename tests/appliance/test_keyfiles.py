"""Key files: nobody else reads a private one, and nothing but an Ed25519 key is taken for one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from conductor.errors import ConfigError
from conductor.process.keyfiles import fingerprint, generate, load_private, load_public


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "site.key", tmp_path / "site.pub"
    generate(*paths, "bundle")
    return paths


def test_a_pair_signs_and_checks(pair: tuple[Path, Path]) -> None:
    private, public = load_private(pair[0], "bundle"), load_public(pair[1], "bundle")
    public.verify(private.sign(b"x"), b"x")
    assert fingerprint(public) == fingerprint(private.public_key())


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        generate(tmp_path / "k", tmp_path / "k.pub", "bundle")
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o777 for p in (tmp_path / "k", tmp_path / "k.pub")] == [
        0o600,
        0o644,
    ]


@pytest.mark.parametrize("present", ["k", "k.pub"])
@pytest.mark.parametrize("make", [lambda p: p.write_text("old"), lambda p: p.symlink_to("none")])
def test_a_key_is_never_replaced(
    tmp_path: Path, present: str, make: Callable[[Path], object]
) -> None:
    make(tmp_path / present)
    with pytest.raises(ConfigError, match="is there already"):
        generate(tmp_path / "k", tmp_path / "k.pub", "bundle")
    assert [path.name for path in tmp_path.iterdir()] == [present]


def test_a_directory_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        generate(tmp_path / "none" / "k", tmp_path / "none" / "k.pub", "bundle")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o777])
def test_a_private_key_that_others_can_open_is_refused(pair: tuple[Path, Path], mode: int) -> None:
    pair[0].chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_private(pair[0], "bundle")


def _pem(key: ec.EllipticCurvePrivateKey | ed448.Ed448PrivateKey) -> tuple[bytes, bytes]:
    return (
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )


NO_KEYS: dict[str, tuple[bytes, bytes]] = {
    "empty": (b"", b""),
    "text": (b"key", b"key"),
    "bytes": (bytes(range(256)), bytes(range(256))),
    "another curve": _pem(ec.generate_private_key(ec.SECP256R1())),
    "Ed448": _pem(ed448.Ed448PrivateKey.generate()),
    "long": (b"x" * 100_000, b"x" * 100_000),
    "encrypted": (
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
        ),
        b"",
    ),
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_what_is_no_ed25519_key_is_refused(tmp_path: Path, name: str) -> None:
    for data, load in zip(NO_KEYS[name], (load_private, load_public), strict=True):
        path = tmp_path / load.__name__
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match="the bundle key is "):
            load(path, "bundle")


def test_private_and_public_are_not_mixed_up(pair: tuple[Path, Path]) -> None:
    pair[1].chmod(0o600)
    with pytest.raises(ConfigError):
        load_private(pair[1], "bundle")
    with pytest.raises(ConfigError):
        load_public(pair[0], "bundle")


def test_a_pipe_or_a_device_in_a_keys_place_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        for load in (load_private, load_public):
            with pytest.raises(ConfigError, match=r"no regular file|cannot be read"):
                load(path, "bundle")
