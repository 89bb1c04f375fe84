"""A checked bundle as a folder of our own, for runners, which open files by their path.

In the bundle's own folder a file may be another by then than the one that was checked, and there
may be more of them. Here stand the bytes that were checked and nothing else, where nobody but this
user and root can write: a model's sizes and settings, and machine code above all.

Weights are too large to be written twice. They stand here as links into the bundle's folder, so
whoever can write there can still change them between the check and their use. They are numbers and
no code: with others the model writes other plans, all of which the automaton permits. A folder that
only root can write to closes that too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conductor.errors import StartError
from conductor.planner.bundle import Bundle
from conductor.planner.kinds import KINDS


@contextmanager
def laid_out(bundle: Bundle) -> Iterator[Path]:
    """The folder, for as long as the context lasts; what was mapped or loaded meanwhile stays.

    Raises `StartError` when the folder for temporary files has no room, `BundleError` as
    `Bundle.read` does.
    """
    try:
        # Readable by this user alone.
        made = tempfile.TemporaryDirectory(prefix="conductor-bundle-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_room(error) from None
    with made as name:
        folder = Path(name)
        try:
            _fill(folder, bundle)
        except OSError as error:
            raise _no_room(error) from None
        yield folder


def _fill(folder: Path, bundle: Bundle) -> None:
    kind, source = KINDS[bundle.manifest.kind], bundle.path.absolute()
    for name in bundle.manifest.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind.is_weights(name):
            path.symlink_to(source / name)
        else:
            path.touch(0o600, exist_ok=False)
            path.write_bytes(bundle.read(name))


def _no_room(error: OSError) -> StartError:
    return StartError(
        "the bundle's files cannot be laid out in the folder for temporary files "
        f"({os.strerror(error.errno or 0)}): make room there, or let TMPDIR name another"
    )
