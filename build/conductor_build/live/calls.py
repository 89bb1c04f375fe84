"""Asks workers, each thing once: implements `core.Caller` for plays.

What the journal knows is not asked again; what is being asked already is waited for. Everything
else is asked within the worker's own limits, tried again when it fails for a passing reason, paid
for out of one account, and kept. In a replay the journal alone answers, and what it does not know
is an error.

A call that somebody waits for runs on when he leaves: it is paid for, and others may want it. A
worker that failed often in a row is left alone for a while, and whoever wants it is told the last
failure at once: a dead endpoint must not hold up each of a thousand plays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import orjson

from conductor.core import Body, Call, Caller, Failure, Reply, Usage, Worker
from conductor.errors import WorkerError
from conductor.run.budget import estimate_tokens
from conductor_build.live.accounts import Account
from conductor_build.live.journal import Entry, Journal, JournalError, call_key
from conductor_build.live.replies import believed, reply, seconds_of, text_of
from conductor_build.probe import PASSING


class NotRecorded(JournalError):
    """A replay came to something that was never asked."""

    def __init__(self, worker: str, key: str) -> None:
        self.worker, self.key = worker, key
        super().__init__(
            f"the replayed journal has no answer of {worker!r} to call {key[:16]}: it is of "
            "another run, recipe or seed, or of one that did not come so far"
        )

    def __reduce__(self) -> tuple[type[NotRecorded], tuple[str, str]]:
        return NotRecorded, (self.worker, self.key)  # it may come out of another process


@dataclass(frozen=True)
class Settings:
    """How workers are asked. Times in seconds."""

    tries: int = 3
    pause_s: float = 1.0
    """Before a second try, doubled before each further one."""
    total_s: float = 300.0
    """For one try, beside the worker's own timers."""
    give_up: int = 8
    """Failed calls in a row, of all tries each, after which a worker is left alone."""
    rest_s: float = 30.0
    """For how long."""


@dataclass
class _Worker:
    """How one worker stands."""

    free: asyncio.Semaphore
    failed: int = 0
    rests_until_s: float = 0.0
    last: Failure = Failure.REFUSED


class Calls:
    """One instance serves all plays of an event loop; `close` at the end."""

    def __init__(
        self,
        callers: Callable[[Worker], Caller],
        journal: Journal,
        account: Account | None = None,
        settings: Settings = Settings(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`callers` says through what a worker is asked; `clock` gives seconds and only rises."""
        self.account = account if account is not None else Account()
        self._callers = callers
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._under_way: dict[str, asyncio.Task[Entry]] = {}

    @asynccontextmanager
    async def call(self, worker: Worker, call: Call) -> AsyncIterator[Reply]:
        """An answer, kept or new. Raises `WorkerError` after the last try, `CostReached` before
        money is spent that must not be, `NotRecorded` in a replay."""
        entry = await self._entry(worker, call)
        yield reply(entry.text, entry.usage, entry.seconds)

    async def close(self) -> None:
        """End the calls under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _entry(self, worker: Worker, call: Call) -> Entry:
        key = call_key(worker, call.body)
        entry = self._journal.find(key)
        if entry is not None:
            self.account.kept += 1
            return entry
        if not self._journal.writable:
            raise NotRecorded(worker.id, key)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(worker, call, key), name=f"call {worker.id}")
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._left(key, done))
        else:
            self.account.kept += 1
        return await asyncio.shield(task)

    def _left(self, key: str, task: asyncio.Task[Entry]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits any more

    async def _ask(self, worker: Worker, call: Call, key: str) -> Entry:
        state = self._workers.setdefault(
            worker.id, _Worker(asyncio.Semaphore(worker.limits.max_in_flight))
        )
        for tried in range(1, self._settings.tries + 1):
            try:
                async with state.free:
                    entry = await self._tried(worker, state, call, key)
            except WorkerError as error:
                last = tried == self._settings.tries or error.failure not in PASSING
                if last or self._resting(state):
                    self._note_failed(state, error.failure)
                    raise
                self.account.retried += 1
                pause_s = self._settings.pause_s * 2 ** (tried - 1)
                await asyncio.sleep(max(pause_s, min(error.retry_after_s or 0.0, 60.0)))
            else:
                state.failed = 0
                self._journal.add(entry)
                return entry
        raise AssertionError("at least one try is made")

    def _resting(self, state: _Worker) -> bool:
        return self._clock() < state.rests_until_s

    def _note_failed(self, state: _Worker, failure: Failure) -> None:
        if self._resting(state):
            return
        state.failed += 1
        state.last = failure
        if state.failed >= self._settings.give_up:
            state.rests_until_s = self._clock() + self._settings.rest_s

    async def _tried(self, worker: Worker, state: _Worker, call: Call, key: str) -> Entry:
        """One try. Raises `WorkerError`, `CostReached`."""
        if self._resting(state):
            raise WorkerError(state.last, "left alone for a while")
        account, size, most = self.account, len(call.body), _max_tokens(worker, call)
        held = account.hold(worker, size, most)
        begun = self._clock()
        try:
            body, told_s = await self._sent(worker, call)
            text = text_of(body)
        except WorkerError as error:
            account.failed(worker, held, error.failure, size)
            raise
        except BaseException:
            account.left(worker, held, size)
            raise
        usage = believed(body, size, most) or _estimated(text, size, most)
        seconds = self._clock() - begun if told_s is None else told_s
        usd = account.answered(worker, held, usage)
        return Entry(
            key, worker.id, text, usage.prompt_tokens, usage.completion_tokens,
            round(seconds, 4), usd,
        )  # fmt: skip

    async def _sent(self, worker: Worker, call: Call) -> tuple[Body, float | None]:
        """The body, and what `seconds_of` says of it."""
        call = replace(call, total_s=min(call.total_s, self._settings.total_s))
        async with self._callers(worker).call(worker, call) as answer:
            body = await answer.json()
            return body, seconds_of(answer, body)


def _max_tokens(worker: Worker, call: Call) -> int:
    """The most that it may write."""
    asked = orjson.loads(call.body).get("max_tokens")
    return int(asked or worker.limits.max_output_tokens)


def _estimated(text: str, prompt_bytes: int, most: int) -> Usage:
    """From the texts' lengths; `most` is what may be written."""
    written = estimate_tokens(len(text.encode("utf-8", "replace")))
    return Usage(estimate_tokens(prompt_bytes), min(most, written), estimated=True)
