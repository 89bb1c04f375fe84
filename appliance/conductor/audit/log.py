"""The audit log: an append-only, hash-chained record of every decision, durable before it acts.

`post` fixes a record's place in the chain and returns a future that resolves once the record is
on disk. A writer thread takes whatever is waiting, writes and syncs it in one go (group commit
without an added delay) and wakes the loop once per batch. When the disk fails, every waiting post
fails, and each later one tries to open the log again: nothing is answered unrecorded. So does the
writer by itself every `RETRY_S`, since whoever balances load may send no request until it is well.

Left out: the record's form (`record.py`), files and crash recovery (`segments.py`),
checking (`verify.py`), checkpoints and signatures.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from conductor.audit.record import ChainEnd, Fields, Moment, checked, hash_line, seal
from conductor.audit.segments import (
    MAX_BATCH,
    Segment,
    chain_end,
    lock,
    read_tail,
    segment_path,
    segments,
)
from conductor.errors import AuditError

SEGMENT_BYTES = 256 << 20
RETRY_S = 1.0
"""Between two attempts to open a log again that could not be written."""


@dataclass(frozen=True, slots=True)
class _Entry:
    event: str
    fields: Fields
    moment: Moment
    future: asyncio.Future[None]


class AuditLog:
    """The one writer of an audit directory. Open with `AuditLog.open`; `post` from the loop."""

    def __init__(
        self, directory_fd: int, segment: Segment, end: ChainEnd, max_batch: int, segment_bytes: int
    ) -> None:
        self._directory_fd = directory_fd
        self._segment = segment
        self._end = end
        self._max_batch = max_batch
        self._segment_bytes = segment_bytes
        self._boot_id = _boot_id()
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._lost = 0
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="audit-writer", daemon=True)
        self.commits = 0
        """Batches made durable so far."""

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        max_batch: int = 64,
        segment_bytes: int = SEGMENT_BYTES,
        start: Mapping[str, object] | None = None,
    ) -> AuditLog:
        """Lock the directory, cut back what a crash tore, write the `start` record (with the
        fields `start`), and begin. Blocks for a few syncs.

        Raises:
            AuditError: somebody else writes this log, it is damaged, or it cannot be written.
        """
        if not 1 <= max_batch <= MAX_BATCH:
            raise AuditError(f"audit.max_batch must be 1 to {MAX_BATCH}")
        first = checked("start", start or {})
        with contextlib.ExitStack() as undo:
            directory_fd = lock(directory)
            undo.callback(os.close, directory_fd)
            try:
                segment, end, torn = _find_end(directory, directory_fd)
                undo.callback(segment.close)
                segment.reopen()
                log = cls(directory_fd, segment, end, max_batch, segment_bytes)
                log._write([("start", first, _now()), *_told_torn(torn)])
            except OSError as error:
                raise AuditError(f"the audit log cannot be opened: {_reason(error)}") from None
            undo.pop_all()
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
        return self._end

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
                self._queue.put(_Entry(event, copy, _now(), future))
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
            self._queue.put(_Entry("stop", {}, _now(), future))
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        await future

    # -- the writer thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while batch := self._take():
                self._commit(batch)
        finally:
            with self._gate:
                self._closed = True
            self._segment.close()
            os.close(self._directory_fd)
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
        while self._trouble:
            try:
                return self._queue.get(timeout=RETRY_S)
            except queue.Empty:
                self._commit([])
        return self._queue.get()

    def _commit(self, batch: list[_Entry]) -> None:
        """Make a batch durable, or fail it. An empty one only opens the log again."""
        records = [(entry.event, entry.fields, entry.moment) for entry in batch]
        failure = "the audit log cannot be written"
        try:
            if self._trouble:
                self._segment.reopen()
                note: Fields = {"lost": self._lost, "reason": self._trouble}
                moment = batch[0].moment if batch else _now()
                records.insert(0, ("log_recovered", note, moment))
            self._write(records)
            self._lost, self._trouble, failure = 0, "", ""
        except OSError as error:
            self._lost += len(batch)
            self._trouble = _reason(error)
            failure = f"the audit log cannot be written: {self._trouble}"
        finally:
            _hand_back(batch, failure)

    def _write(self, records: list[tuple[str, Fields, Moment]]) -> None:
        """Chain, write and sync; the chain moves on only when all of it is durable."""
        if self._segment.good_bytes >= self._segment_bytes:
            self._segment = self._next_segment()
        end, lines = self._end, []
        for event, fields, moment in records:
            line = seal(end, event, fields, moment, self._boot_id)
            lines.append(line)
            end = ChainEnd(end.seq + 1, hash_line(line))
        self._segment.append(b"\n".join(lines) + b"\n")
        self._end = end
        self.commits += 1

    def _next_segment(self) -> Segment:
        path = self._segment.path
        number = int(path.stem.partition("-")[2]) + 1
        following = Segment(self._directory_fd, segment_path(path.parent, number), 0)
        following.reopen()
        self._segment.close()
        return following

    def _refuse_rest(self) -> None:
        """Should the thread end otherwise than by `close`, nobody may wait for ever."""
        with contextlib.suppress(queue.Empty):
            while True:
                entry = self._queue.get_nowait()
                if entry is not None:
                    _hand_back([entry], "the audit log is closed")


def _find_end(directory: Path, directory_fd: int) -> tuple[Segment, ChainEnd, bytes]:
    """The segment to go on with, where its chain stands, and what a crash tore."""
    existing = segments(directory)
    if not existing:
        return Segment(directory_fd, segment_path(directory, 1), 0), ChainEnd(), b""
    tails = [read_tail(path) for path in existing[-2:]]
    # A crash between creating a segment and writing to it leaves the end one segment back.
    last_line = next((tail.last_line for tail in reversed(tails) if tail.last_line), None)
    if last_line is None and len(existing) > 1:
        raise AuditError("the last two audit segments are empty: run `conductor audit verify`")
    end = ChainEnd() if last_line is None else chain_end(last_line)
    return Segment(directory_fd, existing[-1], tails[-1].good_bytes), end, tails[-1].torn


def _told_torn(torn: bytes) -> list[tuple[str, Fields, Moment]]:
    if not torn:
        return []
    note: Fields = {"cut_bytes": len(torn), "cut_sha256": hash_line(torn)}
    return [("log_recovered", {**note, "lost": 0, "reason": "torn"}, _now())]


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


def _now() -> Moment:
    return Moment(time.time_ns(), time.monotonic_ns())


def _reason(error: OSError) -> str:
    """`ENOSPC` and the like: the name only, never the path."""
    return errno.errorcode.get(error.errno or 0, "EIO")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Without it monotonic times of two runs cannot be compared, so no two may look alike.
        return str(uuid.uuid4())
