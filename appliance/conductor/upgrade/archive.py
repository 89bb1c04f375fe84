"""Configuration and state in one file, and back.

    about.json                  version, format of the state, when it was made
    etc/conductor/...           with its credentials: whoever has the file has the vendor keys
    var/lib/conductor/...       keys, policies, ledger, audit log
    var/lib/conductor-published/...

A tar file, compressed, mode 0600. Of a running appliance the copy is what a power cut would leave:
the audit log grows at its end only, and its last line may be cut. GNU tar does the work, since it
keeps owners by name. Model files are left out: they are large, and known by hash.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from conductor.errors import UpgradeError
from conductor.upgrade.layout import KEPT, Box
from conductor.upgrade.versions import Version

ABOUT = "about.json"
_CHANGED_WHILE_READ = 1
"""GNU tar's exit status when a file grew meanwhile."""


@dataclass(frozen=True)
class About:
    """What a copy says of itself. `made_at` is UTC in ISO 8601."""

    version: str
    state_format: int
    made_at: str


def save(box: Box, version: Version, file: Path) -> About:
    """Write a copy of the box to `file`, which must not be there. Raises `UpgradeError`."""
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    made = About(version.name, version.state_format, made_at)
    held = [name for name in KEPT if (box.root / name).is_dir()]
    new = file.with_name(f".{file.name}.new")
    if file.exists():
        raise UpgradeError(f"{file} is there already: name another file")
    try:
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / ABOUT).write_text(json.dumps(asdict(made)))
            _tar("-czf", str(new), "-C", folder, ABOUT, "-C", str(box.root), *held)
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.rename(file)
    except OSError as error:
        raise UpgradeError(f"the copy cannot be written: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)
    return made


def about(file: Path) -> About:
    """What a copy says of itself. Raises `UpgradeError` when it is none."""
    try:
        facts = json.loads(_tar("-xzOf", str(file), ABOUT))
        return About(str(facts["version"]), int(facts["state_format"]), str(facts["made_at"]))
    except (ValueError, KeyError, TypeError):
        raise UpgradeError(f"{file} is no copy of an appliance") from None


def restore(box: Box, file: Path) -> About:
    """Put a copy in the place of what is there. The appliance must be stopped.

    Everything is unpacked first; then each folder is exchanged by two renames. Raises
    `UpgradeError`, and nothing has changed unless the disk failed between those.
    """
    found = about(file)
    side = {name: (box.root / name).with_name(f".{Path(name).name}.restored") for name in KEPT}
    with tempfile.TemporaryDirectory(dir=box.root / "var/lib", prefix=".restore-") as folder:
        _tar("-xpzf", str(file), "-C", folder)
        held = [name for name in KEPT if (Path(folder) / name).is_dir()]
        for name in held:
            shutil.rmtree(side[name], ignore_errors=True)
            _move(Path(folder) / name, side[name])
    for name in held:
        _exchange(box.root / name, side[name])
    return found


def _move(source: Path, target: Path) -> None:
    """To another file system too, with owners and modes: `/etc` may be one of its own."""
    try:
        source.rename(target)
    except OSError:
        target.mkdir()
        _run("cp", "-aT", str(source), str(target))


def _exchange(place: Path, new: Path) -> None:
    old = place.with_name(f".{place.name}.replaced")
    shutil.rmtree(old, ignore_errors=True)
    with suppress(FileNotFoundError):
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def _tar(*words: str) -> bytes:
    return _run("tar", *words, allowed=(0, _CHANGED_WHILE_READ))


def _run(*argv: str, allowed: tuple[int, ...] = (0,)) -> bytes:
    try:
        done = subprocess.run(argv, capture_output=True, check=False)  # noqa: S603
    except OSError as error:
        raise UpgradeError(f"{argv[0]} cannot be run: {error.strerror}") from None
    if done.returncode not in allowed:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise UpgradeError(f"{argv[0]} failed: {' '.join(said)}")
    return done.stdout
