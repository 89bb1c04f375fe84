"""Secrets by reference: where they come from, and that they show nowhere."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest

from conductor.core import SecretRef
from conductor.errors import ConfigError, SecretUnavailable
from conductor.secretrefs import MAX_BYTES, Secret, read_ref, resolve
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import parse

TEXT = "sk-live-0123456789"


def secret_file(path: Path, data: bytes = TEXT.encode(), mode: int = 0o600) -> SecretRef:
    path.write_bytes(data)
    path.chmod(mode)
    return SecretRef("file", str(path))


def test_a_secret_shows_as_asterisks_wherever_it_is_printed() -> None:
    secret = Secret(TEXT)
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret!r:>40}", f"{[secret]}"):
        assert TEXT not in shown
        assert "***" in shown
    assert secret.reveal() == TEXT


def test_a_secret_is_neither_pickled_nor_copied_into_a_dump() -> None:
    for dump in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            dump(Secret(TEXT))


def test_secrets_compare_by_what_they_are() -> None:
    assert Secret("a") == Secret("a")
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert Secret("a") != "a"


def test_each_scheme_finds_its_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_KEY", TEXT)
    assert resolve(SecretRef("env", "VENDOR_KEY")).reveal() == TEXT
    reference = secret_file(tmp_path / "key")
    assert resolve(reference).reveal() == TEXT
    assert resolve(SecretRef("credential", "key"), tmp_path).reveal() == TEXT
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert resolve(SecretRef("credential", "key")).reveal() == TEXT


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_one_trailing_line_end_is_not_part_of_a_secret(tmp_path: Path, ending: bytes) -> None:
    assert resolve(secret_file(tmp_path / "key", TEXT.encode() + ending)).reveal() == TEXT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"a\n\n",
        b"a b",
        b"a\nb",
        b"a\r\nx: y",
        b"\xff\xfe",
        b"a\x00",
        b"x" * MAX_BYTES * 2,
    ],
)
def test_a_file_that_holds_no_single_visible_word_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(SecretUnavailable) as caught:
        resolve(secret_file(tmp_path / "key", data))
    assert str(tmp_path / "key") in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666, 0o601])
def test_a_file_that_everybody_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SecretUnavailable, match="chmod o-rwx") as caught:
        resolve(secret_file(tmp_path / "key", mode=mode))
    assert TEXT not in str(caught.value)


def test_a_secret_that_is_not_there_names_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.delenv("NOT_SET", raising=False)
    os.mkfifo(tmp_path / "pipe")
    for reference in (
        SecretRef("env", "NOT_SET"),
        SecretRef("credential", "vendor"),
        SecretRef("file", str(tmp_path / "absent")),
        SecretRef("file", str(tmp_path)),
        SecretRef("file", str(tmp_path / "pipe")),
    ):
        with pytest.raises(SecretUnavailable) as caught:
            resolve(reference)
        assert str(reference) in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("env:VENDOR_KEY", SecretRef("env", "VENDOR_KEY")),
        ("credential:vendor.key", SecretRef("credential", "vendor.key")),
        ("file:/etc/key", SecretRef("file", "/etc/key")),
        ("file:keys/app", SecretRef("file", "/root-of-paths/keys/app")),
    ],
)
def test_a_reference_is_read_from_yaml(text: str, expected: SecretRef) -> None:
    value = parse(f"key: {text}".encode(), "f.yaml", Faults()).find("key")
    assert value is not None
    reference = read_ref(value, Path("/root-of-paths"))
    assert reference == expected


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"env:{TEXT}",
        f"credential:../{TEXT}",
        f"credential:..{TEXT}",
        f"file{TEXT}",
        f"vault:{TEXT}",
        "'env:'",
        "'file:'",
        "'credential:..'",
        f'"file:{TEXT}\\n"',
        f"[{TEXT}]",
    ],
)
def test_an_inline_secret_is_refused_and_not_repeated(text: str) -> None:
    faults = Faults()
    value = parse(f"key: {text}".encode(), "f.yaml", faults).find("key")
    assert value is not None
    assert read_ref(value, Path("/")) is None
    with pytest.raises(ConfigError, match=r"f.yaml:1:6: ") as caught:
        faults.raise_any()
    assert TEXT not in str(caught.value)
    assert len(caught.value.faults) == 1
