"""Continuous batching: every step reads some tokens of each sequence that runs, and lets it choose.

A job joins as soon as a place and blocks for its longest plan are free, in the order of asking, and
leaves when it has ended, failed or nobody wants it any more. So no job waits for the end of others,
and none ever has to make room for another.

Whatever breaks, breaks one job: work on several that fails is done again for each alone. That is
harmless, since reading the same tokens twice writes the same keys and values. For one thread; the
thread itself, and whoever waits, are `runner.py`'s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from conductor.planner.lm_runner import RunnerFailed, Token, Wanted
from conductor_kernels.runner.decoder import Decoder
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


@dataclass(frozen=True, eq=False)
class _Draw:
    """How a job's next token is to be chosen."""

    mask: Tensor
    """[V] bool"""
    numbers: Tensor | None
    """As `ops.choose` takes them."""


class Batch:
    """All jobs of one decoder."""

    def __init__(self, decoder: Decoder, *, max_running: int, prefill_tokens: int) -> None:
        self._decoder, self._cache = decoder, decoder.cache
        self._max_running, self._prefill_tokens = max_running, prefill_tokens
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
        """Let jobs leave and join, then read and choose once. Raises nothing of a job's."""
        self._drop_left()
        self._admit()
        shares = self._shares()
        hidden = self._each(shares, lambda jobs: self._read([shares[job] for job in jobs]))
        asking = [job for job in hidden if self._running[job].read(shares[job])]
        draws = self._alone(asking, self._draw)
        chosen = self._each(draws, lambda jobs: self._choose(jobs, hidden, draws))
        self._alone(chosen, lambda job: self._go_on(job, *chosen[job]))

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
        prefix = self._prefixes.use(shared_part(job.wanted.prefix))
        own = self._cache.take(own_blocks(job.wanted))
        sequence = self._running[job] = Sequence(job.wanted, prefix, own)
        self._tell(job, sequence.begin())

    def _leave(self, job: Job) -> None:
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
        """Something of every sequence; of all together about as many tokens as a step may read."""
        shares, left = {}, self._prefill_tokens
        for job, sequence in self._running.items():
            shares[job] = sequence.share(max(1, left))
            left -= len(shares[job].tokens)
        return shares

    def _read(self, shares: list[Share]) -> list[Tensor]:
        return list(self._decoder.forward(shares))

    def _draw(self, job: Job) -> _Draw:
        sequence, vocabulary = self._running[job], self._decoder.shape.vocabulary
        return _Draw(sequence.mask(vocabulary), sequence.numbers(vocabulary))

    def _choose(
        self, jobs: list[Job], hidden: dict[Job, Tensor], draws: dict[Job, _Draw]
    ) -> list[tuple[int, float]]:
        device = self._decoder.device
        numbers = [draws[job].numbers for job in jobs]
        return self._decoder.choose(
            torch.stack([hidden[job] for job in jobs]),
            torch.stack([draws[job].mask for job in jobs]).to(device),
            [job.wanted.temperature for job in jobs],
            [None if one is None else one.to(device) for one in numbers],
        )

    def _go_on(self, job: Job, token: int, log_prob: float) -> None:
        if not math.isfinite(log_prob):
            raise ArithmeticError("the model answers with what is no number")
        self._tell(job, self._running[job].take(token, log_prob))

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
        job.fail(RunnerFailed(f"the runner broke while it wrote a plan ({type(error).__name__})"))
