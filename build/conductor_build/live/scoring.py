"""Answers judged beside the event loop, each one once: a group of plays often comes to the same.

A verifier that hangs is left behind in a thread that does not hold up the end of the process, and
the answer is void, as it is when the verifier breaks. One that never lets go of the interpreter, in
a long search for a pattern, holds up everything: those that run what others wrote belong in a jail
(`tasks/jail.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count

from conductor_build.tasks.common import Example, Task, Void, VoidReason, judged

_KEPT = 65_536
"""Scores kept: some 15 MB."""
_TASKS = 64
"""Tasks known at a time: where games come from another process, each brings its own."""
AT_ONCE = 2
"""Verifiers at once, by default: they may take a core each."""
MOST_HUNG = 32
"""Verifiers left behind that still run: beyond them, nothing is judged."""


@dataclass(frozen=True)
class Score:
    """`quality` 0 to 1, or None and why there is none."""

    quality: float | None
    void: str | None = None


class Scoring:
    """Scores answers. One instance serves all plays of an event loop."""

    def __init__(self, limit_s: float, at_once: int = AT_ONCE) -> None:
        """`limit_s`: for one answer, waiting not included."""
        self._limit_s = limit_s
        self._free = asyncio.Semaphore(at_once)
        self._hung: list[threading.Thread] = []
        self._tasks: OrderedDict[int, tuple[Task, int]] = OrderedDict()
        self._serials = count()
        self._known: OrderedDict[bytes, Score] = OrderedDict()

    async def of(self, task: Task, example: Example, answer: str) -> Score:
        """The score. An empty answer is worth nothing, whatever was asked. Never raises for what
        a verifier does."""
        if not answer.strip():
            return Score(0.0)
        key = self._key(task, example, answer)
        score = self._known.get(key)
        if score is None:
            async with self._free:
                score = await self._judged(task, example, answer)
            if score.void is None:  # a verifier that broke may not the next time
                self._known[key] = score
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return score

    def _key(self, task: Task, example: Example, answer: str) -> bytes:
        told = f"{self._serial(task)}\0{example.key}\0{answer}".encode("utf-8", "replace")
        return hashlib.blake2b(told, digest_size=16).digest()

    def _serial(self, task: Task) -> int:
        """A number of its own for each task, as long as it is among those met last."""
        kept = self._tasks.pop(id(task), None)
        if kept is None:  # kept with its task, whose `id` could else become another one's
            kept = task, next(self._serials)
        self._tasks[id(task)] = kept
        if len(self._tasks) > _TASKS:
            self._tasks.popitem(last=False)
        return kept[1]

    async def _judged(self, task: Task, example: Example, answer: str) -> Score:
        late = Score(None, f"verifier:{VoidReason.TIMEOUT}")
        self._hung = [one for one in self._hung if one.is_alive()]
        if len(self._hung) >= MOST_HUNG:
            return late
        done, thread = _aside(task, example, answer)
        try:
            async with asyncio.timeout(self._limit_s):
                return Score(await done)
        except TimeoutError:
            self._hung.append(thread)
            return late
        except Void as void:
            return Score(None, f"verifier:{void.reason}")


def _aside(
    task: Task, example: Example, answer: str
) -> tuple[asyncio.Future[float], threading.Thread]:
    """`judged` in a daemon thread: those of `asyncio.to_thread` are waited for at the end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[float] = loop.create_future()

    def tell(score: float | None, void: Void | None) -> None:
        if done.done():
            return  # nobody waits any more
        if void is not None:
            done.set_exception(void)
        elif score is not None:
            done.set_result(score)

    def work() -> None:
        score, void = None, None
        try:
            score = judged(task, example, answer)
        except Void as fault:
            void = fault
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, score, void)

    thread = threading.Thread(target=work, name="verifier", daemon=True)
    thread.start()
    return done, thread
