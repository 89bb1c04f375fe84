"""A small model served by this process itself: llama.cpp's server on a Unix socket.

The only importer of xllamacpp, whose server speaks the OpenAI protocol, batches continuously, and
stops a generation when its client leaves. The process is ready when its socket is there: it loads
first, and only then takes its place under the final name.

llama.cpp's own log is discarded: it repeats parts of requests in its warnings. What matters is
logged here, without content.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

import structlog

from conductor.errors import StartError
from conductor.process.manager import notify

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SPARE_HTTP_THREADS = 8
"""A kept connection holds one of llama.cpp's HTTP threads until it closes; health checks too."""


@dataclass(frozen=True)
class EmbeddedModel:
    """What to serve. `alias` is the model name in answers, `context_tokens` the window of each of
    `parallel` requests at a time, `max_output_tokens` where a request states no bound."""

    path: Path
    alias: str
    context_tokens: int
    max_output_tokens: int
    parallel: int = 1
    threads: int = 1


def own_log_stream() -> TextIO:
    """Take standard error for this process's own log, and send all that native code writes to
    nowhere. Python's tracebacks follow the log."""
    stream = os.fdopen(os.dup(2), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    sys.stderr = sys.stdout = stream
    return stream


def run_embedded(model: EmbeddedModel, socket: Path) -> NoReturn:
    """Serve until SIGTERM or SIGINT, then end the process. Raises `StartError` before that."""
    log = structlog.get_logger()
    # Loading runs in native code, where no Python handler could run: until it is done, a signal
    # simply ends the process.
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir(socket.parent)
    with _owned(socket):
        provisional = Path(f".{socket.name}.new.sock")  # llama.cpp knows a socket by its ".sock"
        provisional.unlink(missing_ok=True)
        log.info("loading", worker_model=model.alias)
        _server = _serve(model, provisional)
        if Path().stat().st_mode & stat.S_ISGID:  # made for its group to ask
            provisional.chmod(0o660)
        provisional.rename(socket.name)
        notify(READY=1, STATUS=f"serving {model.alias}")
        log.info("listening", worker_model=model.alias, socket=socket.name)
        number = _wait_for_signal()
        notify(STOPPING=1)
        log.info("stopping", signal=number.name)
        Path(socket.name).unlink(missing_ok=True)
    # At once, with the server still referenced: its destructor would wait for generations that run.
    os._exit(0)


def _wait_for_signal() -> signal.Signals:
    """A stop signal, whichever thread the kernel gives it to: native ones block none."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    return signal.Signals(os.read(reader, 1)[0])


@contextmanager
def _owned(socket: Path) -> Iterator[None]:
    """Hold the socket's name for as long as this process lives. The lock dies with its holder, so
    a socket file that a killed process left behind is simply replaced."""
    with Path(f".{socket.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(f"another worker runs on {socket.name}: stop it first") from None
        if os.path.lexists(socket.name) and not stat.S_ISSOCK(os.lstat(socket.name).st_mode):
            raise StartError(f"{socket.name} exists and is no socket: move it away")
        yield


def _serve(model: EmbeddedModel, socket: Path) -> Any:
    """Load, and listen on a relative path, which is short whatever the directory is."""
    xllamacpp = _engine()
    before = os.umask(0o177)
    try:
        return xllamacpp.Server(_parameters(xllamacpp, model, socket))
    except (RuntimeError, ValueError, OSError):
        raise StartError(
            f"llama.cpp cannot load {model.alias}: is there enough memory for a window of "
            f"{model.context_tokens} tokens times {model.parallel}?"
        ) from None
    finally:
        os.umask(before)


def _engine() -> Any:
    try:
        import xllamacpp
    except ImportError:
        raise StartError(
            "embedded workers need xllamacpp: pip install 'conductor-appliance[embedded]'"
        ) from None
    return xllamacpp


def _parameters(xllamacpp: Any, model: EmbeddedModel, socket: Path) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model.path)
    parameters.model_alias = {model.alias}
    parameters.hostnames = [str(socket)]
    parameters.offline = True
    parameters.n_parallel = model.parallel
    parameters.n_ctx = model.context_tokens * model.parallel
    parameters.fit_params = False
    parameters.n_predict = model.max_output_tokens
    parameters.cpuparams.n_threads = model.threads
    parameters.cpuparams_batch.n_threads = model.threads
    parameters.n_threads_http = 2 * model.parallel + _SPARE_HTTP_THREADS
    # Nothing of one request is kept for the next: reuse would show, in time and in the usage,
    # whether somebody else has sent the same beginning.
    parameters.cache_prompt = False
    parameters.cache_ram_mib = 0
    parameters.endpoint_slots = False
    parameters.ui = False
    return parameters
