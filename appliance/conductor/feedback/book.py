"""The feedback book: answers wait in it to be judged, and judged ones are written down.

Nothing is written of an answer that nobody judges. Writing happens in a thread of its own, and no
request waits for it but the one that judges. What cannot be written is dropped and counted, and the
answer may be judged again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import structlog

from conductor.errors import ApiError, BadRequest, NotFound
from conductor.feedback.files import Lines
from conductor.feedback.record import Answered, line
from conductor.feedback.waiting import Gone, Waiting
from conductor.logs import error_name
from conductor.settings import FeedbackConfig

MAX_WRITING = 64
"""Judgements that may wait for the disk; one more is dropped."""

log = structlog.get_logger()


class FeedbackBook:
    """One instance serves all requests of an event loop. `count` is told `recorded`, `dropped`,
    `unknown` or `again` for every judgement."""

    def __init__(
        self,
        config: FeedbackConfig,
        folder: Path,
        count: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waiting = Waiting(config.max_waiting_bytes, config.wait_s, clock)
        self._lines = Lines(folder, config.max_file_bytes, config.max_files)
        self._count = count
        self._writing = 0
        self._failing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feedback")

    def keep(self, answered: Answered) -> None:
        """From now on the key that asked may judge it."""
        self._waiting.put(answered)

    async def judge(self, key_id: str, request_id: str, score: float) -> bool:
        """Write down what the key says of the answer to its request, from 0 to 1. False when it
        could not be written.

        Raises `NotFound` for a request that waits for no judgement of this key, and `BadRequest`
        for one that it has judged: the first judgement counts.
        """
        answered = self._waiting.take(key_id, request_id)
        if isinstance(answered, Gone):
            self._count(answered)
            raise _refusal(answered)
        # The client may leave meanwhile: then it is written all the same.
        return await asyncio.shield(self._written(answered, score))

    async def close(self) -> None:
        """Write what is under way, and end."""
        await asyncio.to_thread(self._thread.shutdown)
        self._lines.close()

    async def _written(self, answered: Answered, score: float) -> bool:
        done = self._writing < MAX_WRITING
        self._writing += 1
        try:
            if done:
                done = await self._in_thread(answered, score)
        finally:
            self._writing -= 1
        if not done:
            self._waiting.put(answered)
        self._count("recorded" if done else "dropped")
        return done

    async def _in_thread(self, answered: Answered, score: float) -> bool:
        at = datetime.now(UTC)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                self._thread, lambda: self._lines.append(line(answered, score, at))
            )
        except OSError as error:
            if not self._failing:  # once for each time that it begins
                log.warning("feedback_not_written", error=error_name(error))
            self._failing = True
            return False
        self._failing = False
        return True


def open_book(
    config: FeedbackConfig, folder: Path, count: Callable[[str], None]
) -> FeedbackBook | None:
    """The book, or None where no label is named up to which questions may be kept."""
    return None if config.max_label is None else FeedbackBook(config, folder, count)


def _refusal(why: Gone) -> ApiError:
    if why is Gone.AGAIN:
        return BadRequest(
            "This answer was judged before: the first judgement counts.",
            param="request_id",
            code="already_judged",
        )
    return NotFound(
        "There is no such answer to be judged: give the x-request-id of an answer that this key "
        "was given not long ago. What is too sensitive to be kept can never be judged.",
        param="request_id",
    )
