"""Writing a bundle, so that at every moment there is either a whole one or none.

Everything is written into a hidden sibling of the final directory and put on the disk: the files,
then the manifest, then the signature. There it is opened like any other bundle, and only then
renamed into place in one step. Weights of a language model are copied piece by piece and never held
in memory. A kill, a full disk or a power cut leaves at most the sibling, which
the next write to the same place removes.

An existing bundle is never replaced: `out` must not exist, or be an empty directory. Setting a path
to a new directory is the operator's step, and the way back.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.errors import BundleError
from conductor.planner.bundle import MANIFEST, SIGNATURE, Bundle, open_bundle
from conductor.planner.kinds import LM, MAX_TOTAL_BYTES, POCKET
from conductor.planner.manifest import (
    EncoderId,
    FileFact,
    Manifest,
    PromptId,
    Provenance,
    Refusal,
    encode,
)
from conductor.planner.signature import sign
from conductor.process.newfile import write_new

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PIECE = 4 * 1024 * 1024
_FILE_MODE = 0o644
_FOLDER_MODE = 0o755  # the planner process runs as another user than the one who trains


@dataclass(frozen=True)
class Facts:
    """What the writer cannot find out from the files. `created` None: now."""

    features: int
    encoder: EncoderId
    provenance: Provenance
    created: datetime | None = None

    def manifest(self, files: Mapping[str, FileFact]) -> Manifest:
        """Of a pocket conductor of these files. Not checked yet."""
        when = _when(self.created)
        return Manifest(when, self.provenance, files, features=self.features, encoder=self.encoder)


@dataclass(frozen=True)
class LmFacts:
    """The same of a language model. `precision`: how its weights are stored."""

    prompt: PromptId
    precision: str
    provenance: Provenance
    created: datetime | None = None

    def manifest(self, files: Mapping[str, FileFact]) -> Manifest:
        """Of a language model of these files. Not checked yet."""
        return Manifest(
            _when(self.created),
            self.provenance,
            files,
            kind=LM.name,
            prompt=self.prompt,
            precision=self.precision,
        )


def _when(created: datetime | None) -> str:
    return (created or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_bundle(
    out: Path,
    files: Mapping[str, bytes | Path],
    facts: Facts | LmFacts,
    signing_key: Ed25519PrivateKey,
    fits: Callable[[Bundle], None] = lambda opened: None,
) -> Bundle:
    """Write, sign, check and put in place; returns the bundle as it was read back.

    `files` maps paths inside the bundle to contents, or to files that hold them. `fits` may refuse
    the bundle by a `BundleError`, before anybody sees it.
    Raises `BundleError`, and then `out` is as it was; only when the disk fails to confirm the very
    last step, `out` is whole and the error says to check it.
    """
    kind = LM if isinstance(facts, LmFacts) else POCKET
    contents = {
        path: source if kind.is_weights(path) else _content(path, source)
        for path, source in files.items()
    }
    described = {path: _described(path, content) for path, content in contents.items()}
    manifest = encode(facts.manifest(described))
    written = {
        **dict(sorted(contents.items())),
        MANIFEST: manifest,
        SIGNATURE: sign(signing_key, manifest),
    }
    try:
        _refuse_present(out)
        _make(out.parent)
        with sibling(out) as folder:
            _fill(folder, written)
            bundle = open_bundle(folder, [signing_key.public_key()])
            fits(bundle)
            # Refused by the system when something that is not an empty directory is there by now.
            folder.rename(out)
    except OSError as error:
        raise _cannot(f"{_said(error)}; its path is as it was") from None
    _confirm(out.parent)
    return replace(bundle, path=out)


def _content(path: str, source: bytes | Path) -> bytes:
    """Read once, so that what is hashed is what is written."""
    if isinstance(source, bytes):
        return source
    try:
        with source.open("rb") as file:
            return file.read(MAX_TOTAL_BYTES + 1)  # one too many, for the manifest to refuse
    except OSError as error:
        raise _cannot(f"the file for {path} cannot be read ({_said(error)})") from None


def _described(path: str, content: bytes | Path) -> FileFact:
    """Of weights in a file, what it holds now; that it was copied so is checked in the end."""
    if isinstance(content, bytes):
        return FileFact(hashlib.sha256(content).hexdigest(), len(content))
    try:
        with content.open("rb") as file:
            return FileFact(hashlib.file_digest(file, "sha256").hexdigest(), file.tell())
    except OSError as error:
        raise _cannot(f"the file for {path} cannot be read ({_said(error)})") from None


def _refuse_present(out: Path) -> None:
    """Told early; what counts is that the rename at the end refuses the same."""
    empty = out.is_dir() and not out.is_symlink() and not any(out.iterdir())
    if os.path.lexists(out) and not empty:
        raise _cannot("something is there already; give a new directory, then point to that one")


def _fill(folder: Path, written: Mapping[str, bytes | Path]) -> None:
    """In the order given, each file on the disk before the next is begun."""
    for path, data in written.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, Path):
            _copy(target, data)
        else:
            write_new(target, data, _FILE_MODE)
    for inner, _, _ in os.walk(folder, topdown=False):
        Path(inner).chmod(_FOLDER_MODE)
        _sync(Path(inner))


def _copy(target: Path, source: Path) -> None:
    """As `write_new`, piece by piece."""
    with target.open("xb") as file, source.open("rb") as held:
        os.fchmod(file.fileno(), _FILE_MODE)
        shutil.copyfileobj(held, file, _PIECE)
        file.flush()
        os.fsync(file.fileno())


def _make(parent: Path) -> None:
    """Directories that are not there yet, each of them on the disk."""
    if not parent.is_dir():
        _make(parent.parent)
        parent.mkdir(exist_ok=True)
        _sync(parent.parent)


def _confirm(parent: Path) -> None:
    try:
        _sync(parent)
    except OSError as error:
        raise BundleError(
            Refusal.WRITE,
            f"the bundle is in place, but the disk did not confirm it ({_said(error)}): check it "
            "with `conductor-build bundle verify`",
        ) from None


@contextmanager
def sibling(out: Path) -> Iterator[Path]:
    """A directory beside `out`, locked while it is in use and gone afterwards."""
    prefix = f".{out.name}.partial-"
    for left in out.parent.iterdir():
        if left.name.startswith(prefix):
            _remove_abandoned(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    try:
        with _descriptor(folder) as descriptor:
            _hold(folder, descriptor)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hold(folder: Path, descriptor: int) -> None:
    """From here on no other writer takes it for abandoned; one that already has is an error."""
    try:
        _lock(descriptor)
    except BlockingIOError:
        raise _cannot("another one is being written to the same path") from None
    except OSError:
        return  # a file system without locks, where nothing is ever taken for abandoned
    folder.lstat()


def _remove_abandoned(left: Path) -> None:
    """What a killed writer left. One at work holds the lock; where there are no locks, it stays."""
    with suppress(OSError), _descriptor(left) as descriptor:
        _lock(descriptor)
        shutil.rmtree(left)


def _lock(folder: int) -> None:
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _descriptor(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    with _descriptor(folder) as descriptor:
        os.fsync(descriptor)


def _said(error: OSError) -> str:
    return os.strerror(error.errno or 0)


def _cannot(message: str) -> BundleError:
    return BundleError(Refusal.WRITE, f"the bundle cannot be written: {message}")
