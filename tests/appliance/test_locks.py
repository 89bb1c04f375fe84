"""The locks: everything pinned by hash, and to each use only what it needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted(ROOT.glob("requirements/*.txt"))
TRAINING = {"torch", "onnx", "threadpoolctl", "matplotlib", "triton", "transformers", "trl", "ray"}
EXTRAS = {
    "runtime": {"planner"},
    "demo": {"planner", "embedded", "egress", "demo"},
    "train": {"planner", "train"},
    "lm": {"planner", "embedded", "train", "lm"},
    "dev": {"planner", "embedded", "egress", "demo", "train", "lm", "dev"},
}

_PIN = re.compile(r"([a-z0-9.-]+)={2,3}(\S+) \\")


def pins(lock: str) -> dict[str, str]:
    """Name and version of every package that a lock holds."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return dict(map(_split, filter(_PIN.match, text.splitlines())))


def _split(line: str) -> tuple[str, str]:
    found = _PIN.match(line)
    assert found is not None
    return found.group(1), found.group(2)


def asked_for(extras: set[str]) -> dict[str, str]:
    """What pyproject.toml pins for these extras, torch left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][e] for e in extras)]
    wanted = [entry.partition(",")[0].split("==") for entries in lists for entry in entries]
    return {name.lower(): version for name, version in wanted if name != "torch"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_line_of_a_lock_is_a_pin_a_hash_or_a_comment(lock):
    previous = ""
    for line in lock.read_text().splitlines():
        if re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line):
            assert previous.endswith("\\")
        else:
            assert not previous.endswith("\\")
            assert not line or line.startswith("#") or _PIN.fullmatch(line), line
        previous = line
    assert not previous.endswith("\\")


@pytest.mark.parametrize("lock", EXTRAS)
def test_a_lock_holds_what_pyproject_asks_for(lock):
    wanted = asked_for(EXTRAS[lock])
    assert {name: pins(lock).get(name) for name in wanted} == wanted


@pytest.mark.parametrize("lock", ["runtime", "demo"])
def test_what_only_training_needs_is_not_installed_to_serve(lock):
    assert not TRAINING & pins(lock).keys()
    assert {"onnxruntime", "tokenizers", "numpy"} <= pins(lock).keys()


def test_torch_stands_in_its_own_two_locks_and_in_one_version():
    assert "torch" not in {**pins("train"), **pins("lm"), **pins("dev")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (version,) = (
        entry.partition("==")[2]
        for entry in project["optional-dependencies"]["train"]
        if entry.startswith("torch==")
    )
    assert pins("torch-cpu") == {"torch": f"{version}+cpu"}
    assert pins("torch-cuda")["torch"] == version
    assert f"\ntorch==={version} " in (ROOT / "requirements" / "torch-cuda.txt").read_text()


def test_locks_that_are_installed_together_agree():
    for lock in ("train", "lm", "dev"):
        alone, other = pins(lock), pins("torch-cuda")
        assert {name: (alone[name], other[name]) for name in alone.keys() & other.keys()} == {
            name: (alone[name], alone[name]) for name in alone.keys() & other.keys()
        }
    for lock in ("runtime", "demo", "train", "lm"):
        assert pins(lock).items() <= pins("dev").items()


def test_one_numpy_fits_the_kernels_too():
    assert tuple(map(int, pins("dev")["numpy"].split("."))) < (2, 4)
