"""Writes a bundle over and over, each time killed with SIGKILL one step later than before.

Run as a program: `python -m support.bundle_kills DIRECTORY [WEIGHTS]`. With a file of weights it is
a language model's bundle that is written. It prints one JSON line a try: how the try ended, and
what stands in the directory then. A step is an audited call into the system (open, mkdir, rename,
chmod, ...), an fsync, or half a file's bytes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conductor.errors import BundleError
from conductor.planner.bundle import open_bundle
from conductor_build import bundle as writer
from support.bundles import FILES, KEY, TRUSTED
from support.written import FACTS, LM_FACTS, LM_FILES

_AUDITED = frozenset(
    {
        "open",
        "os.mkdir",
        "os.rename",
        "os.chmod",
        "os.remove",
        "os.rmdir",
        "os.scandir",
        "os.listdir",
    }
)


def _killed_at(last: int) -> Callable[..., None]:
    """A step counter that ends this process at step number `last`."""
    steps = 0

    def step(event: str = "fsync", _: Any = None) -> None:
        nonlocal steps
        if event in _AUDITED or event == "fsync":
            steps += 1
            if steps == last:
                os.kill(os.getpid(), signal.SIGKILL)

    return step


def _write(out: Path, last: int, weights: Path | None) -> None:
    """In a process of its own: never returns when there is a step `last`."""
    step = _killed_at(last)
    write_new, copy = writer.write_new, writer._copy

    def counted_fsync(descriptor: int) -> None:
        """Without the disk: what a killed process has written stays either way."""
        step()

    def halting_write(path: Path, data: bytes, mode: int) -> None:
        path.write_bytes(data[: len(data) // 2])
        step()
        path.unlink()
        write_new(path, data, mode)

    def halting_copy(path: Path, source: Path) -> None:
        path.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
        step()
        path.unlink()
        copy(path, source)

    sys.addaudithook(step)
    os.fsync = counted_fsync
    writer.write_new, writer._copy = halting_write, halting_copy
    if weights is None:
        writer.write_bundle(out, FILES, FACTS, KEY)
    else:
        files = {**LM_FILES, "lm/model.safetensors": weights}
        writer.write_bundle(out, files, LM_FACTS, KEY)


def _state(out: Path) -> str:
    """The id of the bundle that is there, or why there is none."""
    try:
        return open_bundle(out, TRUSTED).id
    except BundleError as error:
        return str(error.reason)


def main(directory: Path, weights: Path | None = None) -> None:
    last, ended = 0, signal.SIGKILL.value
    while ended == signal.SIGKILL:
        last += 1
        child = os.fork()
        if child == 0:
            _write(directory / "b", last, weights)
            os._exit(0)
        ended = os.WTERMSIG(os.waitpid(child, 0)[1])
        names = sorted(path.name for path in directory.iterdir())
        print(json.dumps({"ended": ended, "state": _state(directory / "b"), "names": names}))
        if (directory / "b").exists():  # killed after the rename: room for the next try
            (directory / "b").rename(directory / f"done-{last}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
