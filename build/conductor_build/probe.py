"""Asks workers calibration questions through their real endpoints, and scores what they answer.

Each worker is asked `at_once` questions at a time; one at a time measures its speed. What fails for
a passing reason is tried again. What cannot be had, since the endpoint is down, slow or
returns junk, or since the verifier broke, is void: counted, never taken for a wrong answer. A
worker that gives nothing but voids is given up early.

Left out: what becomes of the answers (`probe_cards.py`), and how it is shown (`probe_progress.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from conductor.core import Body, Call, Caller, Failure, Usage, Worker
from conductor.errors import WorkerError
from conductor_build.live.replies import believed, text_of
from conductor_build.probe_journal import Asked, Journal, identity
from conductor_build.tasks.common import Example, Task, Void, judged

PASSING = frozenset(
    {Failure.OVERLOADED, Failure.RATE_LIMITED, Failure.LOADING, Failure.SERVER_ERROR, Failure.CUT}
)
"""Failures that may be over a moment later."""
_SCORING = 2
"""Verifiers at once, over all workers."""
_CHARS_A_TOKEN = 4


@dataclass(frozen=True)
class Settings:
    """How a probe asks. Times in seconds."""

    max_tokens: int = 512
    temperature: float = 0.0
    at_once: int = 1
    """Questions at a time to one worker, within its own limit."""
    tries: int = 3
    pause_s: float = 1.0
    """Before a second try, doubled before each further one."""
    total_s: float = 300.0
    give_up: int = 5
    """Voids of an endpoint in a row, with no answer before, after which it is asked no more."""
    max_cost_usd: float = 5.0
    """Of this run over all workers. Nothing is asked after it."""

    def digest(self) -> str:
        """What answers depend on."""
        return f"{self.max_tokens} tokens, temperature {self.temperature:g}"


Watch = Callable[[Asked, int], None]
"""Told each result, and how many questions that worker has left."""


class Probe:
    """One probe of some workers on one task."""

    def __init__(
        self, task: Task, callers: Callable[[Worker], Caller], settings: Settings, watch: Watch
    ) -> None:
        """`callers` says through what a worker is asked."""
        self._task = task
        self._callers = callers
        self._settings = settings
        self._watch = watch
        self._scoring = asyncio.Semaphore(_SCORING)
        self._spent_usd = 0.0

    async def run(self, workers: Sequence[Worker], journal: Journal) -> None:
        """Ask every worker what it has not answered yet. Cancelled, it has noted what it knows."""
        done = {(row.worker, row.identity, row.key) for row in journal.rows if row.void is None}
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                name = worker.id, identity(worker)
                places = [
                    place
                    for place in range(len(self._task))
                    if (*name, self._task[place].key) not in done
                ]
                group.create_task(self._all(worker, places, journal))

    async def _all(self, worker: Worker, places: list[int], journal: Journal) -> None:
        lanes = max(1, min(self._settings.at_once, worker.limits.max_in_flight))
        state = _State(places[::-1])
        await asyncio.gather(*(self._lane(worker, state, journal) for _ in range(lanes)))

    async def _lane(self, worker: Worker, state: _State, journal: Journal) -> None:
        while state.left and not self._over(worker, state):
            row = await self._ask(worker, self._task[state.left.pop()])
            state.note(row)
            self._spent_usd += row.usd
            journal.add(row)
            self._watch(row, len(state.left))

    def _over(self, worker: Worker, state: _State) -> bool:
        hopeless = not state.answered and state.voids >= self._settings.give_up
        dear = not worker.price.free and self._spent_usd >= self._settings.max_cost_usd
        return hopeless or dear

    async def _ask(self, worker: Worker, example: Example) -> Asked:
        about = worker.id, identity(worker), example.key, self._task.domain(example)
        begun = time.monotonic()
        try:
            begun, body = await self._answered(worker, example)
            text = text_of(body)
        except WorkerError as error:
            return Asked(*about, void=f"worker:{error.failure}", seconds=time.monotonic() - begun)
        seconds = time.monotonic() - begun
        usage = _usage(body, text, example, self._most(worker))
        score, void = await self._scored(example, text)
        return Asked(
            *about,
            score=score,
            void=void,
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            seconds=round(seconds, 4),
            usd=worker.price.cost_usd(usage),
        )

    async def _scored(self, example: Example, text: str) -> tuple[float | None, str | None]:
        try:
            async with self._scoring:
                return await asyncio.to_thread(judged, self._task, example, text), None
        except Void as void:
            return None, f"verifier:{void.reason}"

    async def _answered(self, worker: Worker, example: Example) -> tuple[float, Body]:
        """An answer, and when the try that gave it began. Raises `WorkerError`."""
        call = self._call(worker, example)
        for tried in range(1, self._settings.tries + 1):
            begun = time.monotonic()
            try:
                async with self._callers(worker).call(worker, call) as reply:
                    return begun, await reply.json()
            except WorkerError as error:
                if error.failure not in PASSING or tried == self._settings.tries:
                    raise
                pause_s = self._settings.pause_s * 2 ** (tried - 1)
                await asyncio.sleep(max(pause_s, min(error.retry_after_s or 0.0, 60.0)))
        raise AssertionError("at least one try is made")

    def _most(self, worker: Worker) -> int:
        """Tokens that it may write."""
        return min(self._settings.max_tokens, worker.limits.max_output_tokens)

    def _call(self, worker: Worker, example: Example) -> Call:
        body = {
            "model": worker.model,
            "messages": [{"role": "user", "content": example.question}],
            "max_tokens": self._most(worker),
            "temperature": self._settings.temperature,
        }
        name = f"probe-{example.key}"[:64]
        return Call(name, orjson.dumps(body), stream=False, total_s=self._settings.total_s)


class _State:
    """How far one worker is."""

    def __init__(self, left: list[int]) -> None:
        self.left = left
        self.answered = False
        self.voids = 0

    def note(self, row: Asked) -> None:
        failed = row.void is not None and row.void.startswith("worker:")
        self.answered |= not failed
        self.voids += failed


def _usage(body: Body, text: str, example: Example, most: int) -> Usage:
    """As reported, if that can be; else estimated from the texts' lengths, at most `most`."""
    reported = believed(body, len(example.question.encode("utf-8", "replace")), most)
    if reported is not None:
        return reported
    asked, answered = (-(-len(one) // _CHARS_A_TOKEN) for one in (example.question, text))
    return Usage(asked, min(most, answered), estimated=True)
