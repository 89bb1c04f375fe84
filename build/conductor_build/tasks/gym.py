"""reasoning-gym's generators as tasks: questions without end, and the generators' own verifiers.

    tasks = gym_tasks(["chain_sum", "gcd"], size=200, seed=7)

Questions are drawn here, answers judged in a jail (`gymverifier.py`): some verifiers evaluate what
they are given. Where one fails or takes too long, the score is void, and it is started anew. The
package is an option of its own; without it, making a task says what to install.

A verifier wants the bare answer and gives a little for one that is hidden in prose. Replies are
prose, so that what one concludes with is tried as well, and only a whole score counts as right.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from conductor.plan.conclusion import READ_CHARS, conclusion, ends
from conductor_build.tasks.common import Example, TaskError, Void, VoidReason, within
from conductor_build.tasks.jail import Inside, Jail, started

PACKAGE = "reasoning_gym"
WHOLE = 0.999
"""Least score of a right answer; the rest is for something that looks like one."""
FORM = "Think first where that helps. Then write the final answer, alone, on the last line."
"""Ends every question: what cannot be read off a reply would count as wrong."""
_MATH = frozenset({"arithmetic", "algebra", "geometry", "probability"})
_MARKS = " *_`$."
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_PROGRAM = Path(__file__).with_name("gymverifier.py")
_START_S = 60.0
"""Beside the first score: importing the package takes 3 s on an idle machine."""


class Verifier:
    """One jailed process that scores, started when it is first asked. Safe from several threads,
    which wait for each other."""

    def __init__(self, limit_s: float = 10.0) -> None:
        """`limit_s`: for one score."""
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._running: tuple[ExitStack, int, int] | None = None

    def best(self, asked: Mapping[str, object]) -> float:
        """The best score of several readings of one answer. Raises `Void`, and starts anew then."""
        with self._lock:
            try:
                limit_s = self._limit_s if self._running else self._limit_s + _START_S
                given, said = self._start()
                _send(given, orjson.dumps({"path": _path(), **asked}) + b"\n")
                return _score(_line(said, time.monotonic() + limit_s))
            except Void:
                self._end()
                raise

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._end()

    def _start(self) -> tuple[int, int]:
        if self._running is None:
            with ExitStack() as stack:
                pair = _started(stack)
                self._running = (stack.pop_all(), *pair)
        return self._running[1:]

    def _end(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            running[0].close()


def _started(stack: ExitStack) -> tuple[int, int]:
    """Where to write questions, and where to read scores."""
    room = Path(
        stack.enter_context(
            tempfile.TemporaryDirectory(prefix="verifier-", ignore_cleanup_errors=True)
        )
    )
    (room / "program.py").write_bytes(_PROGRAM.read_bytes())
    jail = Jail(
        memory_bytes=4 << 30, cpu_s=0, wall_s=float("inf"), site_packages=True,
        readable=tuple(map(Path, _path())),
    )  # fmt: skip
    (theirs_in, given), (said, theirs_out) = os.pipe(), os.pipe()
    for end in (given, said):
        stack.callback(os.close, end)
    try:
        _inside: Inside = stack.enter_context(
            started(jail, room, stdin=theirs_in, stdout=theirs_out)
        )
    finally:
        os.close(theirs_in)
        os.close(theirs_out)
    return given, said


def _path() -> list[str]:
    """Where the package stands, should that not be where Python looks by itself."""
    spec = find_spec(PACKAGE)
    return [] if spec is None or spec.origin is None else [str(Path(spec.origin).parents[1])]


def _send(given: int, line: bytes) -> None:
    try:
        os.write(given, line)  # shorter than a pipe holds: answers are cut
    except BrokenPipeError:
        raise Void(VoidReason.CRASHED) from None


def _line(said: int, until: float) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not select.select([said], [], [], left)[0]:
            raise Void(VoidReason.TIMEOUT)
        some = os.read(said, 4096)
        if not some:
            raise Void(VoidReason.CRASHED)
        line += some
    return line


def _score(line: bytes) -> float:
    with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        score = float(orjson.loads(line)["best"])
        if 0 <= score <= 1:
            return score
    raise Void(VoidReason.CRASHED)


class GymTask:
    """`size` questions of one generator, drawn from `seed`. `settings` are the generator's own."""

    def __init__(
        self, name: str, size: int, seed: int, *, verifier: Verifier, domain: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """`domain` is by default told by the generator's shelf. Raises `TaskError`."""
        self._asked = {"name": name, "settings": {**(settings or {}), "size": size, "seed": seed}}
        self._dataset, self._size = _generator(name, self._asked["settings"]), size
        self._verifier = verifier
        shelf = type(self._dataset).__module__.split(".")[1:2]
        self._domain = domain or ("math" if _MATH.intersection(shelf) else "general")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Example:
        question = self._dataset[within(self, index)]["question"]
        return Example(str(index), f"{question.strip()}\n\n{FORM}", {"index": index})

    def score(self, example: Example, answer: str) -> float:
        asked = {**self._asked, "index": example.facts["index"], "answers": readings(answer)}
        return float(self._verifier.best(asked) >= WHOLE)

    def domain(self, example: Example) -> str:
        return self._domain


def _generator(name: str, settings: Any) -> Any:
    if find_spec(PACKAGE) is None:
        raise TaskError(
            "generated tasks need the package reasoning-gym: pip install "
            "'conductor-appliance[tasks]', or give a file of questions"
        )
    try:
        if not _NAME.fullmatch(name):
            raise ValueError
        return import_module(PACKAGE).create_dataset(name, **settings)
    except (ValueError, TypeError, AssertionError, KeyError) as fault:
        what = type(fault).__name__
        raise TaskError(f"reasoning-gym cannot make {name!r} with these settings: {what}") from None


def readings(answer: str) -> list[str]:
    """What a reply may mean as an answer: all of it, what it concludes with, its last line."""
    text = ends(answer, READ_CHARS).strip().encode("utf-8", "replace").decode()
    found = conclusion(text)
    lines = [line.strip(_MARKS) for line in text.splitlines() if line.strip(_MARKS)]
    said = [text, *([found.text.strip(_MARKS)] if found else []), *lines[-1:]]
    return list(dict.fromkeys(said)) or [""]


def gym_tasks(
    names: Sequence[str], *, size: int, seed: int, verifier: Verifier | None = None
) -> list[tuple[str, GymTask]]:
    """One task a generator, judged by one process. Raises `TaskError`."""
    shared = verifier or Verifier()
    return [(name, GymTask(name, size, seed, verifier=shared)) for name in names]
