"""The wheel built from this tree holds what the appliance needs at run time beside its code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conductor.planner.trust import SHIPPED_NAME, shipped_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*command, str(out)], cwd=ROOT, check=True, capture_output=True, timeout=100)
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


def test_it_holds_the_shipped_conductor_byte_for_byte_and_its_key(wheel: zipfile.ZipFile) -> None:
    folder = shipped_folder()
    files = [folder / f"{SHIPPED_NAME}.pub", *(folder / SHIPPED_NAME).rglob("*")]
    for file in filter(Path.is_file, files):
        name = f"conductor/planner/shipped/{file.relative_to(folder).as_posix()}"
        assert wheel.read(name) == file.read_bytes(), name


def test_it_holds_no_private_key_and_no_state(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert not [name for name in names if name.endswith((".key", ".gguf", ".pyc"))]
    assert not [name for name in names if name.startswith(("var/", "tests/"))]
