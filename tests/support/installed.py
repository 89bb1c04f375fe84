"""An installation below a directory: what the package brings, without the program itself."""

from __future__ import annotations

import shutil
from pathlib import Path

from conductor.box.place import Place

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "systemd"


def install(root: Path) -> Place:
    """Lay out units, the air gap's files and the first configuration's, as the package does."""
    place = Place(root)
    shutil.copytree(SYSTEMD / "air-gapped", place.share / "air-gapped")
    shutil.copytree(SYSTEMD / "units", place.share / "units")
    shutil.copytree(SYSTEMD / "units", place.shipped_units)
    shutil.copytree(SYSTEMD / "examples", place.share / "examples")
    configs = place.share / "configs"
    configs.mkdir(parents=True)
    shutil.copy(ROOT / "configs" / "policy.yaml", configs)
    for path in (SYSTEMD / "configs").glob("*"):
        shutil.copy(path, configs)
    place.config.mkdir(parents=True, mode=0o750)
    place.overrides.mkdir(parents=True)
    return place


def tree(root: Path) -> dict[str, str]:
    """Every file and link below `root`, with what it holds or where it leads."""
    return {
        path.relative_to(root).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }
