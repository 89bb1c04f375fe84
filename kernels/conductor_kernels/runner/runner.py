"""The runner `torch`: one checkpoint, run by a thread of its own, asked from an event loop.

The thread takes jobs from an inbox and steps the batch until nothing is left to do. What it writes
goes to whoever waits by way of that one's event loop, so nothing here ever blocks a loop. A job
that nobody waits for any more is marked, and leaves the batch at the next step.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from conductor.errors import PlanError
from conductor.planner.lm_runner import (
    EngineBusy,
    RunnerFailed,
    RunnerSettings,
    Token,
    Wanted,
)
from conductor_kernels.runner.batch import Batch
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.load import load_decoder
from conductor_kernels.runner.lost import failure
from conductor_kernels.runner.sequence import tokens_needed

STEPS = {"cuda": 8, "cpu": 0}
"""Tokens of each plan in one launch of the device. Eight on a GPU: what a launch and its answer
cost is a small part of it, and whoever leaves is noticed within some 20 ms. On a CPU nothing is
gained by launches, and with the automaton's reference a tiny model's plan takes four times as
long as with the host's own."""
_JOIN_S = 10.0
"""Time for a step to end when the runner is closed."""


def load(folder: Path, settings: RunnerSettings) -> TorchRunner:
    """The checkpoint in a folder, ready to be asked. Raises `StartError`."""
    return TorchRunner(load_decoder(folder, settings), settings, steps=settings.steps_a_launch)


class _Job:
    """A plan under way: written by the thread, read by one coroutine."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.left = False
        self._loop = asyncio.get_running_loop()
        self._coming: asyncio.Queue[list[Token] | RunnerFailed | None] = asyncio.Queue()

    def give(self, tokens: list[Token]) -> None:
        self._post(tokens)

    def end(self) -> None:
        self._post(None)

    def fail(self, error: RunnerFailed) -> None:
        self._post(error)

    async def next(self) -> list[Token]:
        """What was written since; empty at the end. Raises `RunnerFailed`."""
        item = await self._coming.get()
        if isinstance(item, RunnerFailed):
            raise item
        return item or []

    def _post(self, item: list[Token] | RunnerFailed | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._coming.put_nowait, item)
        except RuntimeError:  # the loop is closed, so nobody waits
            self.left = True


class TorchRunner:
    """`Runner` over one decoder."""

    def __init__(
        self, decoder: Decoder, settings: RunnerSettings, steps: int | None = None
    ) -> None:
        """`steps` as in `Batch`; None: by the device (`STEPS`)."""
        self.vocabulary = decoder.shape.vocabulary
        self.at_once = settings.max_running + settings.max_waiting
        self._window = decoder.window
        self._builder = ThreadPoolExecutor(1, "lm blocks")
        self._batch = Batch(
            decoder,
            max_running=settings.max_running,
            prefill_tokens=settings.prefill_tokens,
            steps=STEPS[decoder.device.type] if steps is None else steps,
            builder=self._builder,
        )
        self._threads = settings.threads
        self._under_way = 0
        self._closed = False
        self._inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="lm runner", daemon=True)
        self._thread.start()

    async def write(self, wanted: Wanted) -> AsyncGenerator[Token, None]:
        """As `Runner.write` says."""
        self._check(wanted)
        job = _Job(wanted)
        self._under_way += 1
        try:
            self._inbox.put(job)
            while tokens := await job.next():
                for token in tokens:
                    yield token
        finally:
            job.left = True
            self._under_way -= 1

    def close(self) -> None:
        """As `Runner.close` says."""
        self._closed = True
        self._inbox.put(None)
        self._thread.join(_JOIN_S)
        self._builder.shutdown(wait=False, cancel_futures=True)

    def _check(self, wanted: Wanted) -> None:
        if self._closed:
            raise RunnerFailed("the runner is closed")
        if self._under_way >= self.at_once:
            raise EngineBusy(f"{self.at_once} plans are under way: no more may wait")
        if tokens_needed(wanted) > self._window:
            raise PlanError(
                f"the prompt is too long: with its plan it takes up to {tokens_needed(wanted)} "
                f"tokens, and the model and its cache have room for {self._window}"
            )

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        import torch

        torch.set_num_threads(self._threads)
        while self._take_in():
            try:
                self._batch.step()
            except Exception as error:  # noqa: BLE001  whoever waits must hear of it, and no later job
                self._batch.fail_all(failure(f"the runner broke ({type(error).__name__})"))
        self._batch.fail_all(RunnerFailed("the runner is closed"))

    def _take_in(self) -> bool:
        """All that came; waits where there is nothing to do. False: the runner is to close."""
        while not self._batch.busy or not self._inbox.empty():
            job = self._inbox.get()
            if job is None:
                return False
            self._batch.add(job)
        return True
