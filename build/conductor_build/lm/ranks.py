"""The processes that train together, and what they say to each other.

One leads: it is the one that has the optimiser, writes files and says what comes next; the others
follow. What passes between them are games' numbers, rewards, gradients and weights; the network is
theirs alone, for whoever is on it is believed. gloo carries it on CPUs, nccl on GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from conductor.errors import ConductorError

T = TypeVar("T")
TIMEOUT = timedelta(hours=2)
"""How long one process waits for another: followers also wait while the leader measures."""


class PeersError(ConductorError):
    """The processes of a training cannot work together: the message says what to do."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; by default it is alone."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether it is this process that the others follow."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """What of a batch is this process's."""
        return list(items[self.rank :: self.size])

    def gathered(self, own: Sequence[T]) -> list[T]:
        """The batch of which each process has its share: the opposite of `share`."""
        if self.size == 1:
            return list(own)
        parts: list[list[T]] = [[] for _ in range(self.size)]
        with _together():
            dist.all_gather_object(parts, list(own))
        longest = max(map(len, parts))
        return [part[at] for at in range(longest) for part in parts if at < len(part)]

    def told(self, what: T | None = None) -> T | None:
        """What the leader says, in every process; the leader gives it."""
        if self.size == 1:
            return what
        said: list[Any] = [what]
        with _together():
            dist.broadcast_object_list(said, 0)
        found: T | None = said[0]
        return found

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sums of the processes' numbers, each by its place."""
        summed = torch.tensor(numbers, dtype=torch.float64)
        if self.size > 1:
            with _together():
                dist.all_reduce(summed)
        return [float(one) for one in summed]

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace each of the leader's gradients by the sum over the processes; those of the
        others are worth nothing afterwards. Who has no gradient adds zeros."""
        if self.size == 1:
            return
        with _together():
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.reduce(parameter.grad, 0)

    def take_weights(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Give every process the leader's weights."""
        if self.size == 1:
            return
        with _together(), torch.no_grad():
            for parameter in parameters:
                received = parameter.detach().clone()
                dist.broadcast(received, 0)
                if not self.leads:
                    parameter.copy_(received)


@contextmanager
def joined(timeout: timedelta = TIMEOUT) -> Iterator[Ranks]:
    """Take part in the group that torchrun or `accelerate launch` started this process for; outside
    of one, alone. Raises `PeersError` when the others do not come."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    with _together():  # on GPUs gloo too: for objects, and for weights that FSDP keeps on the CPU
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=timeout)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


@contextmanager
def _together() -> Iterator[None]:
    """What concerns all: torch says `RuntimeError` for whatever goes wrong with the others."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise PeersError(
            "the other processes of this training are gone or out of step "
            f"({type(error).__name__}): end them all, and start them again with --resume"
        ) from error
