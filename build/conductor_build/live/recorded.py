"""Recorded outcomes in the place of workers: implements `core.Caller` over a table.

Answers are stand-ins, of which `tasks/recorded.py` knows the scores; tokens and prices are the
table's. What was recorded is each worker's answer to the bare question: whatever else it is told or
shown, it says that. A worker that is not shown the question says nothing, which is worth nothing;
one of which no answer is recorded fails, and the play is void.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import orjson

from conductor.core import Call, Failure, Reply, Usage, Worker
from conductor.errors import WorkerError
from conductor.run.budget import estimate_tokens
from conductor_build.live import briefs
from conductor_build.live.replies import reply
from conductor_build.seen import normalise
from conductor_build.tasks.common import Example, Void
from conductor_build.tasks.recorded import RecordedTask

TOKENS_PER_S = 50.0
"""How fast recorded answers are taken to have been written."""
UNCOUNTED = 200
"""Output tokens of an answer whose tokens were not recorded."""


class RecordedPool:
    """Answers for the workers of some tables, by their names."""

    def __init__(self, tasks: Sequence[RecordedTask]) -> None:
        self._examples: dict[str, tuple[RecordedTask, int, Example]] = {
            normalise(example.question): (task, place, example)
            for task in tasks
            for place, example in enumerate(task[index] for index in range(len(task)))
        }

    @asynccontextmanager
    async def call(self, worker: Worker, call: Call) -> AsyncIterator[Reply]:
        """The recorded answer. Raises `WorkerError` (`REFUSED`) where there is none."""
        body = orjson.loads(call.body)
        found = self._found(briefs.read(body["messages"]))
        asked = estimate_tokens(len(call.body))
        if found is None:
            yield reply("", Usage(asked, 1), 0.0)
            return
        task, place, example = found
        try:
            text = task.answer(example, worker.id)
        except (Void, ValueError):  # no outcome, or no such worker in this table
            raise WorkerError(Failure.REFUSED, "no outcome is recorded") from None
        tokens = float(task.table.tokens[place, task.table.names.index(worker.id)])
        written = round(tokens) if np.isfinite(tokens) else UNCOUNTED
        yield reply(text, Usage(asked, written), written / TOKENS_PER_S)

    def _found(self, brief: briefs.Brief) -> tuple[RecordedTask, int, Example] | None:
        places = (self._examples.get(normalise(text)) for text in brief.candidates())
        return next(filter(None, places), None)
