"""`conductor-build compile`: the bundle again with its kernels compiled, or nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from conductor.errors import BundleError, ConfigError, StartError
from conductor.planner.bundle import Bundle, Runtime, open_bundle
from conductor.planner.manifest import Refusal
from conductor.process.keyfiles import generate, load_private
from conductor_build.bundle import write_bundle
from conductor_build.cli import conductor_build
from conductor_build.compile import targets, triton_target
from conductor_build.compile.failed import CompileFailed
from conductor_build.compile.targets import Options, find_target
from conductor_build.compile.triton_target import compile_triton
from conductor_kernels.architectures import ARCHITECTURES
from conductor_kernels.catalogue import source_hash
from conductor_kernels.cubins import load_cubins
from conductor_kernels.cudadriver import Device
from conductor_kernels.kernelfile import decode
from support.bundles import KEY, TRUSTED
from support.compiled import FakePool
from support.fake_driver import compile_driver
from support.written import FACTS, LM_FACTS, LM_FILES

WEIGHTS = "lm/model.safetensors"
FILES = {**LM_FILES, WEIGHTS: b"weights" * 1000}
PACKAGE = "support.gated_kernels"


@pytest.fixture
def source(tmp_path: Path) -> Bundle:
    return write_bundle(tmp_path / "source", FILES, LM_FACTS, KEY)


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> FakePool:
    fake = FakePool()
    monkeypatch.setattr(triton_target, "pool", fake)
    monkeypatch.setattr(triton_target, "read_ceilings", lambda: {"weighs": 40, "turns": 40})
    return fake


def make(source: Bundle, out: Path, *architectures: str, **changes: Any) -> Bundle:
    options = Options(**{"key": KEY, "architectures": architectures, **changes})
    return open_bundle(compile_triton(source, out, options, PACKAGE), TRUSTED)


# -- what is written ------------------------------------------------------------------------------


def test_a_compiled_bundle_holds_all_that_was_there_and_the_kernels(
    source: Bundle, tmp_path: Path
) -> None:
    made = make(source, tmp_path / "out", "sm_80", "sm_90")
    added = made.manifest.files.keys() - source.manifest.files.keys()
    assert {name: made.read(name) for name in FILES} == FILES
    assert sorted(added) == [
        "report/kernels.json",
        "report/kernels.md",
        *(f"triton/{architecture}/{name}"
          for architecture in ("sm_80", "sm_90")
          for name in ("kernels.json", "turns.cubin", "turns.ptx", "weighs.cubin", "weighs.ptx")),
    ]  # fmt: skip
    assert made.read("triton/sm_80/weighs.cubin") == b"code of weighs for sm_80"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_it_stays_a_language_models_bundle_of_the_same_making(
    source: Bundle, tmp_path: Path
) -> None:
    made = make(source, tmp_path / "out", "sm_90").manifest
    assert (made.kind, made.prompt, made.precision) == ("lm", LM_FACTS.prompt, LM_FACTS.precision)
    assert made.provenance.seed == LM_FACTS.provenance.seed
    assert made.provenance.versions["triton"]
    open_bundle(tmp_path / "out", TRUSTED, Runtime(kind="lm"))


def test_without_architectures_all_of_them_are_built(source: Bundle, tmp_path: Path) -> None:
    made = make(source, tmp_path / "out")
    folders = {path.split("/")[1] for path in made.manifest.files if path.startswith("triton/")}
    assert folders == set(ARCHITECTURES)


def test_the_record_says_how_each_kernel_is_started(source: Bundle, tmp_path: Path) -> None:
    made = make(source, tmp_path / "out", "sm_90")
    record = decode(made.read("triton/sm_90/kernels.json"))
    assert (record.architecture, record.code) == ("sm_90", "sm_90a")
    assert record.source == source_hash(PACKAGE)
    assert record.kernels["weighs"].arguments == (("weights", "*bf16"), ("rows", "i32"))


def test_the_report_names_figures_faults_and_the_bundle(source: Bundle, tmp_path: Path) -> None:
    made = make(source, tmp_path / "out", "sm_80", "sm_90")
    said = json.loads(made.read("report/kernels.json"))
    assert said["of"] == source.id
    assert said["architectures"]["sm_80"]["weighs"]["registers"] == 40
    assert said["architectures"]["sm_80"]["weighs"]["faults"] == []
    text = made.read("report/kernels.md").decode()
    assert "| weighs | 40 | 1024 | 0 | 0 | 2 | 0 | 0 | 4 | 2 | 0 | 0 | 200 |" in text
    assert text.endswith("## Faults\n\nNone.\n")


def test_faults_that_are_allowed_are_named_in_the_report(
    source: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_target, "read_ceilings", lambda: {"weighs": 39, "turns": 40})
    lines: list[str] = []
    made = make(source, tmp_path / "out", "sm_90", allow_faults=True, say=lines.append)
    said = json.loads(made.read("report/kernels.json"))
    fault = "40 registers, 39 are allowed"
    assert said["allow_faults"]
    assert said["architectures"]["sm_90"]["weighs"]["faults"] == [fault]
    text = made.read("report/kernels.md").decode()
    assert "--allow-faults" in text
    assert f"- weighs, sm_90: {fault}" in text
    assert lines[-1] == f"weighs, sm_90: {fault}"


def test_the_same_bundle_is_made_the_same_whatever_is_ready_first(
    source: Bundle, tmp_path: Path, pool: FakePool
) -> None:
    first = make(source, tmp_path / "1", "sm_80", "sm_90")
    pool.names.reverse()
    second = make(source, tmp_path / "2", "sm_90", "sm_80")
    assert first.manifest.files == second.manifest.files


def test_compiling_again_replaces_what_an_earlier_compile_left(
    source: Bundle, tmp_path: Path
) -> None:
    first = make(source, tmp_path / "1", "sm_80")
    second = make(first, tmp_path / "2", "sm_90")
    assert "triton/sm_90/kernels.json" in second.manifest.files
    assert "triton/sm_80/kernels.json" not in second.manifest.files


def test_what_is_written_is_loaded_for_its_gpu_and_refused_for_another(
    source: Bundle, tmp_path: Path
) -> None:
    driver = compile_driver(tmp_path) or pytest.skip("no C compiler")
    made = make(source, tmp_path / "out", "sm_86")
    driver.reset((8, 9))
    assert load_cubins(made.path, Device(0, driver.path), package=PACKAGE)
    assert driver.modules == 2
    driver.reset((9, 0))
    with pytest.raises(StartError, match="--arch sm_90"):
        load_cubins(made.path, Device(0, driver.path), package=PACKAGE)


def test_each_kernel_is_told_as_it_is_ready(source: Bundle, tmp_path: Path) -> None:
    lines: list[str] = []
    make(source, tmp_path / "out", "sm_90", jobs=3, say=lines.append)
    assert lines[0] == "2 kernels for sm_90, 3 at once"
    assert lines[1:] == [
        "   1/2  sm_90   weighs  40 registers",
        "   2/2  sm_90   turns  40 registers",
    ]


# -- or nothing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CompileFailed("weighs", "?"), KeyboardInterrupt()])
def test_a_build_that_ends_early_leaves_nothing(
    source: Bundle, tmp_path: Path, pool: FakePool, error: Any
) -> None:
    pool.failing = error
    with pytest.raises(type(error)):
        make(source, tmp_path / "out", "sm_80", "sm_90")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_kernel_that_a_gate_refuses_is_not_shipped_by_accident(
    source: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_target, "read_ceilings", lambda: {"weighs": 40})
    lines: list[str] = []
    with pytest.raises(StartError, match=r"2 compiled kernels .* turns, sm_80: .*--allow-faults"):
        make(source, tmp_path / "out", "sm_80", "sm_90", say=lines.append)
    assert [line.partition(":")[0] for line in lines[-2:]] == ["turns, sm_80", "turns, sm_90"]
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_what_the_compiler_said_is_told_and_not_in_the_error(
    source: Bundle, tmp_path: Path, pool: FakePool
) -> None:
    lines: list[str] = []
    pool.failing = CompileFailed("weighs does not compile for sm_90", "line 3: no such name")
    with pytest.raises(CompileFailed) as caught:
        make(source, tmp_path / "out", "sm_90", say=lines.append)
    assert str(caught.value) == "weighs does not compile for sm_90"
    assert lines[-1] == "line 3: no such name"


def test_weights_that_change_meanwhile_are_noticed(source: Bundle, tmp_path: Path) -> None:
    (source.path / WEIGHTS).write_bytes(b"WEIGHTS" * 1000)
    with pytest.raises(BundleError) as caught:
        make(source, tmp_path / "out", "sm_90")
    assert caught.value.reason == Refusal.TAMPERED
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_nothing_is_written_over_what_is_there(source: Bundle, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").touch()
    with pytest.raises(BundleError) as caught:
        make(source, tmp_path / "out", "sm_90")
    assert caught.value.reason == Refusal.WRITE


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"key": None}, "--sign"), ({"architectures": ("sm_75",)}, "take some of sm_80")],
)
def test_what_cannot_be_is_told_before_anything_is_compiled(
    source: Bundle, tmp_path: Path, pool: FakePool, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(StartError, match=said):
        make(source, tmp_path / "out", **changes)
    assert pool.jobs == 0


def test_a_pocket_conductor_has_no_kernels(tmp_path: Path) -> None:
    files = {"pocket/decoder.onnx": b"d", "pocket/seen.bin": b"s"}
    pocket = write_bundle(tmp_path / "pocket", files, FACTS, KEY)
    with pytest.raises(StartError, match="only a language model"):
        make(pocket, tmp_path / "out")


# -- the command ----------------------------------------------------------------------------------


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(conductor_build, ["compile", *map(str, words)])


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A bundle with its private key beside it, as export leaves them."""
    generate(tmp_path / "mine.key", tmp_path / "mine.key.pub", "bundle")
    key = load_private(tmp_path / "mine.key", "bundle")
    return write_bundle(tmp_path / "mine", FILES, LM_FACTS, key).path


def test_the_command_takes_the_key_beside_the_bundle(signed: Path, tmp_path: Path) -> None:
    done = run(signed, "--out", tmp_path / "out", "--arch", "sm_90", "--arch", "sm_90")
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(tmp_path / "out")
    assert "2/2  sm_90" in done.stderr
    key = load_private(tmp_path / "mine.key", "bundle").public_key()
    assert "triton/sm_90/kernels.json" in open_bundle(tmp_path / "out", [key]).manifest.files


def test_the_command_writes_faulty_kernels_only_when_told_to(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_target, "read_ceilings", dict)
    words = (signed, "--out", tmp_path / "out", "--arch", "sm_90")
    assert isinstance(run(*words).exception, StartError)
    assert not (tmp_path / "out").exists()
    assert run(*words, "--allow-faults").exit_code == 0


def test_a_bundle_that_somebody_else_signed_takes_their_public_key(
    signed: Path, source: Bundle, tmp_path: Path
) -> None:
    sign = ("--sign", tmp_path / "mine.key", "--out", tmp_path / "out", "--arch", "sm_90")
    refused = run(source.path, *sign)
    assert isinstance(refused.exception, BundleError)
    assert refused.exception.reason == Refusal.KEY
    shutil.copy(tmp_path / "mine.key.pub", tmp_path / "copy.pub")
    taken = run(signed, *sign, "--key", tmp_path / "copy.pub")
    assert taken.exit_code == 0, taken.output


def test_a_key_that_is_not_there_is_an_error(signed: Path, tmp_path: Path) -> None:
    refused = run(signed, "--out", tmp_path / "out", "--sign", tmp_path / "no.key")
    assert isinstance(refused.exception, ConfigError)


def test_every_target_is_a_function_in_a_file_of_its_own() -> None:
    assert find_target("triton") is compile_triton
    assert all(place.startswith("conductor_build.compile.") for place in targets.TARGETS.values())
    with pytest.raises(StartError, match="take one of triton"):
        find_target("cuda")
