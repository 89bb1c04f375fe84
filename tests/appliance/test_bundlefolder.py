"""What a runner opens by path is what was checked, whatever became of the bundle meanwhile."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from conductor.errors import StartError
from conductor.planner import lm
from conductor.planner.bundle import Bundle, open_bundle
from conductor.planner.bundlefolder import laid_out
from conductor.planner.lm import LmEngine
from conductor.planner.lm_parts import read_parts
from conductor.planner.manifest import PromptId
from support import bundles
from support.lmbundles import FakeRunner, files

EXTRA = {
    "lm/config.json": b'{"hidden_size": 64}',
    "lm/model.safetensors": b"weights",
    "triton/sm_90/kernels.json": b"{}",
    "triton/sm_90/linear.cubin": b"machine code",
}


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    path = bundles.write(
        tmp_path / "bundle", files() | EXTRA, kind="lm", features=None, encoder=None,
        prompt=PromptId(1, "ab" * 32), precision="float32",
    )  # fmt: skip
    return open_bundle(path, bundles.TRUSTED)


def tamper(path: Path) -> None:
    """Whoever can write there puts other files in, and more."""
    for name in ("lm/config.json", "triton/sm_90/kernels.json", "triton/sm_90/linear.cubin"):
        (path / name).unlink()
        (path / name).write_bytes(b"another")
    (path / "lm" / "pytorch_model.bin").write_bytes(b"a pickle")
    (path / "triton" / "sm_100").mkdir()


def held(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if not one.is_dir()}


def test_the_files_are_those_that_were_checked_and_no_others(bundle: Bundle) -> None:
    tamper(bundle.path)
    with laid_out(bundle) as folder:
        assert held(folder) == {*bundle.manifest.files}
        small = set(bundle.manifest.files) - {"lm/model.safetensors"}
        assert all((folder / name).read_bytes() == bundle.read(name) for name in small)
        assert not any((folder / name).is_symlink() for name in small)


def test_weights_are_links_and_not_written_twice(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bundle.path.parent)
    near = open_bundle(Path("bundle"), bundles.TRUSTED)
    with laid_out(near) as folder:
        assert (folder / "lm/model.safetensors").is_symlink()
        assert (folder / "lm/model.safetensors").read_bytes() == b"weights"
    assert (bundle.path / "lm/model.safetensors").read_bytes() == b"weights", "they stay"


def test_nobody_else_can_write_there_and_it_goes_when_it_is_not_needed(bundle: Bundle) -> None:
    with laid_out(bundle) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "triton/sm_90/linear.cubin").stat().st_mode) == 0o600
    assert not folder.exists()
    with pytest.raises(KeyError), laid_out(bundle) as folder:
        raise KeyError
    assert not folder.exists()


def test_no_room_for_them_is_told_in_one_line(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    with pytest.raises(StartError, match=r"laid out .* \(Not a directory\): make room"):
        with laid_out(bundle):
            pytest.fail("it is not there")


def test_a_runner_is_given_that_folder(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, bytes] = {}
    monkeypatch.setattr(lm, "resolve", lambda *_: bundle)

    def read_and_tamper(read: Any) -> Any:
        tamper(bundle.path)
        return read_parts(read)

    def load(folder: Path, _settings: object) -> FakeRunner:
        given.update({name: (folder.parent / name).read_bytes() for name in held(folder.parent)})
        return FakeRunner()

    monkeypatch.setattr(lm, "read_parts", read_and_tamper)
    monkeypatch.setattr(lm, "find_runner", lambda _name: load)
    LmEngine.load(bundle.path, ()).close()
    assert given == files() | EXTRA
