"""Many kernels compiled side by side, each in a process that does nothing else.

The processes start anew and without TRITON_INTERPRET: a Triton that has interpreted once compiles
no more. They end with whoever started them.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, TypeVar

from conductor.errors import ConductorError, StartError
from conductor_build.compile.failed import CompileFailed
from conductor_kernels.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from conductor_build.compile.compiler import Compiled
    from conductor_kernels.kernelspec import Kernel

_T = TypeVar("_T")
_KNOBS = {"TRITON_DISABLE_LINE_INFO": "1"}
"""Without it machine code names the folder that its sources lay in."""


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """That many, with a cache of Triton's that is gone afterwards. Raises `StartError`."""
    if find_spec("triton") is None:
        raise StartError("compiling kernels needs Triton: install requirements/triton.txt")
    with tempfile.TemporaryDirectory(prefix="conductor-triton-") as cache:
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), _prepare, (cache,))
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def kernels_of(pool: ProcessPoolExecutor, package: str) -> list[str]:
    """Names of all kernels that the package lists. Raises `StartError`."""
    return _answer(pool.submit(_names, package))


def compile_all(
    pool: ProcessPoolExecutor,
    package: str,
    names: Collection[str],
    architectures: Sequence[str],
    taken_apart: bool = True,
) -> Iterator[Compiled]:
    """Each of the kernels for each architecture, as they are ready. `taken_apart`: with counts of
    instructions. Raises `CompileFailed` or `StartError` at the first that fails."""
    waiting = [
        pool.submit(_compile, package, name, architecture, taken_apart)
        for architecture in architectures
        for name in names
    ]
    for done in as_completed(waiting):
        yield _answer(done)


def _answer(done: Future[_T]) -> _T:
    try:
        return done.result()
    except BrokenProcessPool:
        raise StartError(
            "a process that compiles was killed, most likely for its memory: give fewer --jobs"
        ) from None


# -- in the processes -----------------------------------------------------------------------------


def _prepare(cache: str) -> None:
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ.update(_KNOBS, TRITON_CACHE_DIR=cache)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us decides, and shuts us down
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent, "started by one"
    parent.join()
    os._exit(1)


def _names(package: str) -> list[str]:
    from conductor_kernels.catalogue import listed

    return list(listed(package))


def _compile(package: str, name: str, architecture: str, taken_apart: bool) -> Compiled:
    from conductor_build.compile.compiler import compile_kernel

    kernel = _kernels(package)[name]
    try:
        return compile_kernel(kernel, ARCHITECTURES[architecture], taken_apart)
    except ConductorError:
        raise
    except Exception as error:  # noqa: BLE001  Triton's passes raise anything
        kind = type(error).__name__
        raise CompileFailed(
            f"{name} does not compile for {architecture} ({kind})", str(error)
        ) from None


def _kernels(package: str) -> dict[str, Kernel]:
    from conductor_kernels.catalogue import listed

    return listed(package)
