"""The audit log: an append-only, hash-chained record of every decision, durable before it acts.

`post` fixes a record's place in the chain and returns a future that resolves once the record is
on disk. A writer thread takes whatever is waiting, writes and syncs it in one go (group commit
without an added delay) and wakes the loop once per batch. When the disk fails, every waiting post
fails, and each later one tries to open the log again: nothing is answered unrecorded. So does the
writer by itself every `RETRY_S`, since whoever balances load may send no request until it is well.

Left out: the record's form (`record.py`), the end of the chain, its seal and its segments
(`writer.py`), what is there when it is opened (`resume.py`), checking (`verify.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from conductor.audit.keys import AuditKey
from conductor.audit.record import ChainEnd, Fields, Moment, checked
from conductor.audit.retention import RETENTION_DAYS, remove_expired
from conductor.audit.segments import MAX_BATCH
from conductor.audit.writer import SEGMENT_BYTES, Writer, now, reason
from conductor.errors import AuditError

RETRY_S = 1.0
"""Between two attempts to open a log again that could not be written."""

CHECKPOINT_S = 60.0
"""Between two signed checkpoints while there is something new."""


@dataclass(frozen=True, slots=True)
class _Entry:
    event: str
    fields: Fields
    moment: Moment
    future: asyncio.Future[None]


class AuditLog:
    """The one writer of an audit directory. Open with `AuditLog.open`; `post` from the loop."""

    def __init__(self, writer: Writer, max_batch: int, checkpoint_s: float, retention_days: int):
        self._writer = writer
        self._max_batch = max_batch
        self._checkpoint_s = checkpoint_s
        self._retention_days = retention_days
        self._signed_at = time.monotonic()
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._lost = 0
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="audit-writer", daemon=True)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        max_batch: int = 64,
        segment_bytes: int = SEGMENT_BYTES,
        start: Mapping[str, object] | None = None,
        key: AuditKey | None = None,
        checkpoint_s: float = CHECKPOINT_S,
        retention_days: int = RETENTION_DAYS,
    ) -> AuditLog:
        """Lock the directory, cut back what a crash tore, write the `start` record (with the
        fields `start`), and begin. Blocks for a few syncs.

        With a `key` the log is sealed: each record under a MAC, a signed checkpoint every
        `checkpoint_s` seconds in which something was recorded, and segments older than
        `retention_days` (0: none ever) removed.

        Raises:
            AuditError: somebody else writes this log, it is damaged or was changed, it is sealed
                and the key is not given or not its own, or it cannot be written.
        """
        if not 1 <= max_batch <= MAX_BATCH:
            raise AuditError(f"audit.max_batch must be 1 to {MAX_BATCH}")
        first = {"start": checked("start", start or {})}
        writer = Writer.open(directory, key, segment_bytes, first)
        log = cls(writer, max_batch, checkpoint_s, retention_days)
        log._thread.start()
        return log

    @property
    def healthy(self) -> bool:
        """Whether the last write reached the disk and the log is open."""
        return not self._closed and not self._trouble

    @property
    def head(self) -> ChainEnd:
        """The last durable record. Noted elsewhere, its hash proves later that nothing up to it
        was cut or rewritten."""
        return self._writer.end

    @property
    def commits(self) -> int:
        """Batches made durable so far."""
        return self._writer.commits

    def post(self, event: str, **fields: object) -> asyncio.Future[None]:
        """Queue a record; its order is fixed now. The future resolves when it is durable and
        fails with `AuditError` when it could not be made so. Cancelling it withdraws nothing.

        Raises:
            AuditError: the fields are not fit to be recorded.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        copy = checked(event, fields)
        with self._gate:
            if self._closed:
                _settle([future], "the audit log is closed")
            else:
                self._queue.put(_Entry(event, copy, now(), future))
        return future

    async def append(self, event: str, **fields: object) -> None:
        """Post a record and wait until it is durable. Raises `AuditError`."""
        await self.post(event, **fields)

    async def close(self) -> None:
        """Record `stop` after everything already posted, release the directory. Idempotent.

        Raises:
            AuditError: the `stop` record could not be written; the log is closed all the same.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(_Entry("stop", {}, now(), future))
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        await future

    # -- the writer thread ------------------------------------------------------------------

    def _run(self) -> None:
        segment: Path | None = None
        try:
            while batch := self._take():
                self._commit(batch)
                self._seal()
                if segment != self._writer.segment and not self._trouble:
                    segment = self._writer.segment
                    self._tend(self._remove_expired)
            if not self._trouble:
                self._tend(self._checkpoint)
        finally:
            with self._gate:
                self._closed = True
            self._writer.close()
            self._refuse_rest()

    def _take(self) -> list[_Entry]:
        """Wait for work, then take all that is there. Empty when the log closes."""
        batch: list[_Entry] = []
        entry = self._first()
        while entry is not None:
            batch.append(entry)
            if len(batch) == self._max_batch:
                return batch
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            self._queue.put(None)  # closing: seen again once this batch is done
        return batch

    def _first(self) -> _Entry | None:
        """The next entry; meanwhile heals the log, and signs what is due."""
        while True:
            try:
                return self._queue.get(timeout=self._patience())
            except queue.Empty:
                self._commit([]) if self._trouble else self._seal()

    def _patience(self) -> float | None:
        if self._trouble:
            return RETRY_S
        if not self._writer.unsigned:
            return None
        return max(0.0, self._signed_at + self._checkpoint_s - time.monotonic())

    def _commit(self, batch: list[_Entry]) -> None:
        """Make a batch durable, or fail it. An empty one only opens the log again."""
        records = [(entry.event, entry.fields, entry.moment) for entry in batch]
        failure = "the audit log cannot be written"
        try:
            if self._trouble:
                self._writer.reopen()
                note: Fields = {"lost": self._lost, "reason": self._trouble}
                moment = batch[0].moment if batch else now()
                records.insert(0, ("log_recovered", note, moment))
            self._writer.append(records)
            self._lost, self._trouble, failure = 0, "", ""
        except OSError as error:
            self._lost += len(batch)
            self._trouble = reason(error)
            failure = f"the audit log cannot be written: {self._trouble}"
        finally:
            _hand_back(batch, failure)

    def _seal(self) -> None:
        """Sign a checkpoint when one is due."""
        due = time.monotonic() >= self._signed_at + self._checkpoint_s
        if due and not self._trouble and self._tend(self._checkpoint):
            self._signed_at = time.monotonic()

    def _checkpoint(self) -> None:
        self._writer.checkpoint(self._moment())

    def _remove_expired(self) -> None:
        with contextlib.suppress(AuditError):  # damage of old: `verify` tells it; recording goes on
            remove_expired(self._writer, self._retention_days, self._moment())

    def _moment(self) -> Moment:
        """Now, unless posts wait: what is written before them may not have a later time."""
        with self._gate:
            return now() if self._queue.empty() else self._writer.last

    def _tend(self, work: Callable[[], None]) -> bool:
        """Do what no post waits for; its failure is the log's, which then has to be healed."""
        try:
            work()
        except OSError as error:
            self._trouble = self._trouble or reason(error)
            return False
        return True

    def _refuse_rest(self) -> None:
        """Should the thread end otherwise than by `close`, nobody may wait for ever."""
        with contextlib.suppress(queue.Empty):
            while True:
                entry = self._queue.get_nowait()
                if entry is not None:
                    _hand_back([entry], "the audit log is closed")


def _hand_back(batch: list[_Entry], failure: str) -> None:
    """Resolve a batch on its loop with one wake-up. A closed loop has nobody left to tell."""
    for loop, entries in groupby(batch, lambda entry: entry.future.get_loop()):
        futures = [entry.future for entry in entries]
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, futures, failure)


def _settle(futures: list[asyncio.Future[None]], failure: str) -> None:
    for future in futures:
        if future.done():
            continue
        if failure:
            future.set_exception(AuditError(failure))
            future.exception()  # a post that nobody awaits is told by `healthy`, not by the loop
        else:
            future.set_result(None)
