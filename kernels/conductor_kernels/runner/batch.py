"""Continuous batching: every step reads some tokens of each sequence that runs, and lets it choose.

Prompts are read here, some tokens a step. Then the device writes the plan by itself, some tokens a
launch (`deviceplans.py`); a plan whose automaton it does not take is written here, token by token.
Which of both does not show: the same tokens come.

A job joins as soon as a place and blocks for its longest plan are free, in the order of asking, and
leaves when it has ended, failed or nobody wants it any more. So no job waits for the end of others,
and none ever has to make room for another.

Whatever breaks, breaks one job: work on several that fails is done again for each alone. That is
harmless, since reading the same tokens twice writes the same keys and values. Only a launch that
breaks takes with it all that were in it: nobody can say how far each of them got. For one thread;
the thread itself, and whoever waits, are `runner.py`'s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from conductor.planner.lm_runner import RunnerFailed, Token, Wanted
from conductor_kernels.runner.decoder import MOST_SEQUENCES, Decoder
from conductor_kernels.runner.deviceplans import DevicePlans, Written
from conductor_kernels.runner.drawing import Ask, drawing_of
from conductor_kernels.runner.lost import failure
from conductor_kernels.runner.prefixes import Prefixes, shared_part
from conductor_kernels.runner.sequence import Sequence, own_blocks
from conductor_kernels.runner.step import Share

T = TypeVar("T")


class Job(Protocol):
    """A plan that somebody waits for. `give`, `end` and `fail` do not raise."""

    @property
    def wanted(self) -> Wanted:
        """The plan. Its tokens fit the decoder's window."""

    @property
    def left(self) -> bool:
        """Nobody wants it any more."""

    def give(self, tokens: list[Token]) -> None:
        """They were written."""

    def end(self) -> None:
        """No more will come."""

    def fail(self, error: RunnerFailed) -> None:
        """No more will come, because of that."""


class Batch:
    """All jobs of one decoder."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        max_running: int,
        prefill_tokens: int,
        steps: int = 0,
        builder: Executor | None = None,
    ) -> None:
        """`steps`: tokens of each plan in one launch of the device; 0: all are written here.
        `builder` as in `DevicePlans`. More than `MOST_SEQUENCES` never run at once."""
        self._decoder, self._cache = decoder, decoder.cache
        self._max_running = min(max_running, MOST_SEQUENCES)
        self._prefill_tokens = prefill_tokens
        self._device = DevicePlans[Job](decoder, steps, builder=builder) if steps else None
        self._prefixes = Prefixes(decoder, prefill_tokens)
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, Sequence] = {}

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self._running)

    def add(self, job: Job) -> None:
        """It joins at the next step with room."""
        self._waiting.append(job)

    def step(self) -> None:
        """Let jobs leave and join, read once, and write. Raises nothing of a job's."""
        self._drop_left()
        self._admit()
        shares = self._shares()
        hidden = self._each(shares, lambda jobs: self._read([shares[job] for job in jobs]))
        asking = [job for job in hidden if self._running[job].read(shares[job])]
        asks = self._alone(asking, lambda job: self._running[job].ask())
        chosen = self._each(asks, lambda jobs: self._choose(jobs, hidden, asks))
        self._alone(chosen, lambda job: self._go_on(job, *chosen[job]))
        self._write_on_device()

    def fail_all(self, error: RunnerFailed) -> None:
        """No job goes on."""
        for job in [*self._waiting, *self._running]:
            self._leave(job)
            job.fail(error)
        self._waiting.clear()

    # -- joining and leaving ------------------------------------------------------------------

    def _drop_left(self) -> None:
        self._waiting = deque(job for job in self._waiting if not job.left)
        for job in [job for job in self._running if job.left]:
            self._leave(job)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._max_running:
            wanted = self._waiting[0].wanted
            shared = shared_part(wanted.prefix)
            needed = own_blocks(wanted) + self._prefixes.missing(shared)
            if not self._prefixes.make_room(needed, shared):
                return
            self._alone([self._waiting.popleft()], self._join)

    def _join(self, job: Job) -> None:
        self._check(job.wanted)
        prefix = self._prefixes.use(shared_part(job.wanted.prefix))
        own = self._cache.take(own_blocks(job.wanted))
        sequence = self._running[job] = Sequence(job.wanted, prefix, own)
        if self._device is not None:
            self._device.admit(job, job.wanted.automaton)
        self._tell(job, sequence.begin())

    def _check(self, wanted: Wanted) -> None:
        """On a GPU an unknown token breaks more than its own plan."""
        vocabulary = self._decoder.shape.vocabulary
        if not all(0 <= token < vocabulary for token in (*wanted.prefix, *wanted.rest)):
            raise IndexError("the prompt holds a token that the model does not know")

    def _leave(self, job: Job) -> None:
        if self._device is not None:
            self._device.leave(job)
        sequence = self._running.pop(job, None)
        if sequence is not None:
            sequence.prefix.users -= 1
            self._cache.give_back(sequence.own)

    def _tell(self, job: Job, tokens: list[Token]) -> None:
        if tokens:
            job.give(tokens)
        if self._running[job].ended:
            self._leave(job)
            job.end()

    # -- one step -----------------------------------------------------------------------------

    def _shares(self) -> dict[Job, Share]:
        """Something of every sequence that is read or written here; of all together about as many
        tokens as a step may read."""
        shares, left = {}, self._prefill_tokens
        for job, sequence in self._running.items():
            on_device = self._device is not None and self._device.holds(job)
            if on_device and sequence.nearly_read:
                continue
            shares[job] = sequence.share(max(1, left), spare=int(on_device))
            left -= len(shares[job].tokens)
        return shares

    def _read(self, shares: list[Share]) -> list[Tensor]:
        return list(self._decoder.forward(shares))

    def _choose(
        self, jobs: list[Job], hidden: dict[Job, Tensor], asks: dict[Job, Ask]
    ) -> list[tuple[int, float]]:
        drawing = drawing_of([asks[job] for job in jobs], self._decoder.shape.vocabulary)
        tokens, log_probs = self._decoder.choose(
            torch.stack([hidden[job] for job in jobs]), drawing.to(self._decoder.device)
        )
        return list(zip(tokens.tolist(), log_probs.tolist(), strict=True))

    def _go_on(self, job: Job, token: int, log_prob: float) -> None:
        if not math.isfinite(log_prob):
            raise _no_number()
        self._tell(job, self._running[job].take(token, log_prob))

    def _write_on_device(self) -> None:
        device = self._device
        if device is None:
            return
        coming = [job for job in self._running if device.holds(job) and not device.writes(job)]
        read = [job for job in coming if self._running[job].nearly_read]
        self._alone(read, lambda job: device.start(job, self._running[job]))
        try:
            written = device.launch()
        except Exception as error:  # noqa: BLE001  as in `_each`
            for job in [job for job in self._running if device.writes(job)]:
                self._fail(job, error)
            return
        self._alone(written, lambda job: self._take(job, written[job]))

    def _take(self, job: Job, written: Written) -> None:
        self._running[job].ended = written.ended and not written.broken
        self._tell(job, written.tokens)
        if written.broken:
            raise _no_number()

    # -- what breaks --------------------------------------------------------------------------

    def _each(self, jobs: Iterable[Job], work: Callable[[list[Job]], list[T]]) -> dict[Job, T]:
        """What `work` makes of the jobs: of all together, or if that breaks of each alone. Who
        breaks alone fails and is left out."""
        together = list(jobs)
        if not together:
            return {}
        try:
            return dict(zip(together, work(together), strict=True))
        except Exception as error:  # noqa: BLE001  torch's errors have no common base of their own
            if len(together) == 1:
                self._fail(together[0], error)
                return {}
        return {job: made for one in together for job, made in self._each([one], work).items()}

    def _alone(self, jobs: Iterable[Job], work: Callable[[Job], T]) -> dict[Job, T]:
        """The same for work that is done one by one anyway."""
        made: dict[Job, T] = {}
        for one in list(jobs):
            made |= self._each([one], lambda jobs: [work(jobs[0])])
        return made

    def _fail(self, job: Job, error: Exception) -> None:
        """The error's text may tell of a prompt, its kind does not."""
        self._leave(job)
        job.fail(failure(f"the runner broke while it wrote a plan ({type(error).__name__})"))


def _no_number() -> ArithmeticError:
    return ArithmeticError("the model answers with what is no number")
