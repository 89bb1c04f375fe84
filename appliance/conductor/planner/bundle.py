"""A bundle: the directory that a trained conductor is on disk, opened only when it can be trusted.

    manifest.json   what it is and what every file must be (`manifest.py`)
    manifest.sig    who vouches for the manifest (`signature.py`)
    pocket/  plan/  report/         of a pocket conductor
    lm/  onnx/  plan/  report/      of a language model, with triton/ once it is compiled

The signature is checked before anything of the manifest is believed, then every file by size and
sha256. Each file is read once, and what is handed out are the bytes that were hashed: whatever
happens on disk afterwards changes nothing. Directories are walked by descriptor and links are never
followed, so that nothing can be put in between.

Weights of a language model do not fit beside themselves. They are hashed piece by piece and not
kept: `read` reads and hashes them again. Whoever maps them by `path` instead gets what is there
then: it is what was checked where nobody else can write, as in a directory of root's.

Left out: who is trusted (`trust.py`); a folder for whoever must be given one (`bundlefolder.py`);
writing bundles (`conductor_build.bundle`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.errors import BundleError
from conductor.plan.language import LANGUAGE_VERSION
from conductor.planner.kinds import KINDS, POCKET
from conductor.planner.manifest import (
    MAX_MANIFEST_BYTES,
    EncoderId,
    FileFact,
    Manifest,
    Refusal,
    decode,
)
from conductor.planner.signature import SIGNATURE_BYTES, check

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"

_PIECE = 4 * 1024 * 1024
_FRESH = "take a fresh copy of the bundle"
_NO_MANIFEST = (
    Refusal.ABSENT,
    "no bundle is there: give the directory that holds manifest.json",
)
_NO_SIGNATURE = (
    Refusal.UNSIGNED,
    "manifest.sig is missing: the bundle was never finished, build it again",
)
_BELOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_PLAIN = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO})
"""What opening a link, a file in a directory's place, or a socket gives."""


@dataclass(frozen=True)
class Runtime:
    """What an installation can run; a bundle made for anything else is refused. None: not asked."""

    plan_language: int = LANGUAGE_VERSION
    features: int | None = None
    encoders: Collection[EncoderId] | None = None
    kind: str | None = None
    """Runtimes that name features run pocket conductors."""


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: all of it was checked, and nothing but weights is read from `path` any
    more."""

    path: Path
    id: str
    """sha256 of the manifest's bytes, lower-case hex: names all of its contents."""
    signer: str
    """Fingerprint of the trusted key that signed it."""
    manifest: Manifest
    _contents: Mapping[str, bytes] = field(repr=False, compare=False)

    def read(self, name: str) -> bytes:
        """The bytes that were verified, by path as in the manifest. Raises `BundleError`."""
        if name in self._contents:
            return self._contents[name]
        fact = self.manifest.files.get(name)
        if fact is None:
            held = ", ".join(sorted(self.manifest.files))
            raise BundleError(Refusal.MISSING, f"no such file in the bundle; it has {held}")
        with _system_errors(), _directory(self.path) as root, _down(root, name) as folder:
            return _verified(folder, name.rpartition("/")[2], name, fact)


def open_bundle(
    path: Path, trusted: Sequence[Ed25519PublicKey], runtime: Runtime | None = None
) -> Bundle:
    """Read all of a bundle and check all of it.

    Raises `BundleError`; its `reason` is a `Refusal`, its message one line that says what to do.
    """
    with _system_errors(), _directory(path) as root:
        data = _read(root, MANIFEST, MAX_MANIFEST_BYTES, _NO_MANIFEST)
        line = _read(root, SIGNATURE, SIGNATURE_BYTES, _NO_SIGNATURE)
        signer = check(line, data, trusted)
        manifest = decode(data)
        _check_runtime(manifest, runtime or Runtime())
        found = dict(_contents(root, "", manifest))
    missing = sorted(manifest.files.keys() - found.keys())
    if missing:
        raise BundleError(Refusal.MISSING, f"{missing[0]} is missing: {_FRESH}")
    contents = {name: content for name, content in found.items() if content is not None}
    return Bundle(path, hashlib.sha256(data).hexdigest(), signer, manifest, contents)


def _check_runtime(manifest: Manifest, runtime: Runtime) -> None:
    """Before the files, whose contents do not matter to a release that cannot use them."""
    if manifest.plan_language != runtime.plan_language:
        raise BundleError(
            Refusal.LANGUAGE,
            f"it writes plan language {manifest.plan_language}, this release reads "
            f"{runtime.plan_language}: train it again, or use the release it was built with",
        )
    wanted = runtime.kind or (POCKET.name if runtime.features is not None else manifest.kind)
    if manifest.kind != wanted:
        raise BundleError(
            Refusal.KIND,
            f"it is a bundle of kind {manifest.kind}, and one of kind {wanted} is asked for: name "
            "another bundle, or another planner.engine",
        )
    if runtime.features is not None and manifest.features != runtime.features:
        raise BundleError(
            Refusal.FEATURES,
            f"it was trained on features {manifest.features}, this release computes "
            f"{runtime.features}: train it again, or use the release it was built with",
        )
    encoder = manifest.encoder
    if encoder and runtime.encoders is not None and encoder not in runtime.encoders:
        raise BundleError(
            Refusal.ENCODER,
            f"it was trained with encoder {encoder.onnx} and tokenizer {encoder.tokenizer}, which "
            "the model catalogue does not hold as a pair: use the release it was built with, or "
            "train it again",
        )


# -- the directory ----------------------------------------------------------------------------


@contextmanager
def _system_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BundleError(
            Refusal.UNREADABLE,
            f"the bundle cannot be read ({os.strerror(error.errno or 0)}): check its permissions",
        ) from None


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    """The bundle's own descriptor. The way to it may hold links, which an operator set."""
    try:
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(*_NO_MANIFEST) from None
    try:
        yield root
    finally:
        os.close(root)


@contextmanager
def _down(root: int, path: str) -> Iterator[int]:
    """The folder that a file of the bundle stands in."""
    with ExitStack() as stack:
        folder = root
        for name in path.split("/")[:-1]:
            folder = stack.enter_context(_opened(folder, name, os.O_DIRECTORY))
        yield folder


def _contents(folder: int, prefix: str, manifest: Manifest) -> Iterator[tuple[str, bytes | None]]:
    """Path and verified bytes of everything below, weights without their bytes; anything the
    manifest does not name refuses."""
    files, kind = manifest.files, KINDS[manifest.kind]
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if kind.is_weights(path) and path in files:
                _verify(folder, entry.name, path, files[path])
                yield path, None
            elif path in files:
                yield path, _verified(folder, entry.name, path, files[path])
            elif any(name.startswith(f"{path}/") for name in files):
                with _opened(folder, entry.name, os.O_DIRECTORY) as inner:
                    yield from _contents(inner, f"{path}/", manifest)
            elif path not in (MANIFEST, SIGNATURE):
                raise BundleError(
                    Refusal.EXTRA,
                    f"{_shown(path)} is not in the manifest: remove it, or {_FRESH}",
                )


def _verified(folder: int, name: str, path: str, fact: FileFact) -> bytes:
    data = _read(folder, name, fact.size)
    if len(data) != fact.size or hashlib.sha256(data).hexdigest() != fact.sha256:
        raise _tampered(path)
    return data


def _verify(folder: int, name: str, path: str, fact: FileFact) -> None:
    """The same for a file of weights, of which never more than a piece is in memory."""
    found, left, piece = hashlib.sha256(), fact.size, bytearray(_PIECE)
    with _file(folder, name) as file:
        while left >= 0 and (count := file.readinto(piece)):
            found.update(memoryview(piece)[:count])
            left -= count
    if left or found.hexdigest() != fact.sha256:
        raise _tampered(path)


def _tampered(path: str) -> BundleError:
    return BundleError(Refusal.TAMPERED, f"{path} is not what the manifest says: {_FRESH}")


def _read(folder: int, name: str, limit: int, absent: tuple[Refusal, str] | None = None) -> bytes:
    """At most one byte more than `limit`, by which whoever asks tells that it is too long."""
    try:
        with _file(folder, name) as file:
            return file.read(limit + 1)
    except FileNotFoundError:
        if absent is None:
            raise
        raise BundleError(*absent) from None


@contextmanager
def _file(folder: int, name: str) -> Iterator[BufferedReader]:
    """A plain file of the folder, and nothing else."""
    # Non-blocking: a pipe in a file's place must not hold up the start.
    with _opened(folder, name, os.O_NONBLOCK) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _special(name)
        with open(descriptor, "rb", closefd=False) as file:
            yield file


@contextmanager
def _opened(folder: int, name: str, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(name, _BELOW | flags, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise _special(name) from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _special(name: str) -> BundleError:
    return BundleError(
        Refusal.SPECIAL, f"{_shown(name)} is a link or no plain file or folder: {_FRESH}"
    )


def _shown(name: str) -> str:
    """A name that a stranger chose, fit for a terminal and for one line."""
    return ascii(name[:80])
