"""What the workers of one play did: called through here, counted, and timed.

The executor knows workers as the game dealt them; who is called is the real one behind that. A
worker that is asked the very same thing twice in a play samples a second answer, as it would behind
the daemon: its second call has the next seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import orjson

from conductor.core import Call, Caller, Reply, Worker
from conductor.run.exchange import waves
from conductor.run.job import Run
from conductor_build.live.replies import WholeReply, seconds_of


class Tally:
    """Implements `core.Caller` for one play."""

    def __init__(self, caller: Caller, workers: Sequence[Worker]) -> None:
        self._caller = caller
        self._real = {worker.id: (place, worker) for place, worker in enumerate(workers)}
        self._same: Counter[tuple[str, bytes]] = Counter()
        self._took: dict[str, list[float]] = {}
        self._used: list[int] = []

    @asynccontextmanager
    async def call(self, worker: Worker, call: Call) -> AsyncIterator[Reply]:
        """One attempt. Raises what the caller raises."""
        place, real = self._real[worker.id]
        self._used.append(place)
        took = self._took.setdefault(worker.id, [])
        turn = len(took)
        took.append(0.0)
        begun = time.monotonic()
        try:
            async with self._caller.call(real, self._again(worker.id, call)) as reply:
                body = await reply.json()
                told_s = seconds_of(reply, body)
            took[turn] = time.monotonic() - begun if told_s is None else told_s
        except BaseException:
            took[turn] = time.monotonic() - begun
            raise
        yield WholeReply(body)

    @property
    def used(self) -> tuple[int, ...]:
        """Places of the workers called, rising, one for each call."""
        return tuple(sorted(self._used))

    def seconds(self, run: Run) -> float:
        """Wall time of the workers: of each wave of steps the slowest, added up."""
        waiting = {name: iter(took) for name, took in self._took.items()}
        total = 0.0
        for one in run.rounds:
            for wave in waves(one.plan, one.drafted.look):
                records = [run.records[number] for number in wave if number in run.records]
                steps = (
                    sum(next(waiting[tried.worker], 0.0) for tried in record.tried if tried.begun)
                    for record in records
                )
                total += max(steps, default=0.0)
        return total

    def _again(self, worker: str, call: Call) -> Call:
        turn = self._same[worker, call.body]
        self._same[worker, call.body] += 1
        if not turn:
            return call
        body = orjson.loads(call.body)
        if "seed" not in body:
            return call
        body["seed"] += turn
        return replace(call, body=orjson.dumps(body, option=orjson.OPT_SORT_KEYS))
