"""Time on the card: what a kernel takes, without what Python takes to start it.

Calls are captured in one CUDA graph, several of them on inputs of their own, so that no call finds
its weights in the second-level cache, as none does in a model. The graph is replayed some times,
each between two events; the median of the replays, over the calls, is the time of one.

On a CPU everything is called once and no time is told: there is nothing to learn from it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Call = Callable[[], object]
WARM_UP = 3
"""Calls before anything is captured: the first compiles, and allocators settle."""


@dataclass(frozen=True)
class Time:
    """Seconds of one call."""

    median: float
    best: float
    worst: float
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Time:
        """Of several rounds."""
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


@dataclass(frozen=True)
class Clock:
    """Times calls on one device."""

    device: torch.device
    rounds: int = 15

    @property
    def measures(self) -> bool:
        """Whether it tells times at all."""
        return self.device.type == "cuda"

    def kernels(self, calls: Sequence[Call]) -> Time | None:
        """Of one of these calls, which do the same on different inputs. They must not wait for the
        host. None: not measured."""
        if not self.measures:
            for call in calls[:1]:
                call()
            return None
        graph = captured(calls)
        return Time.of([seconds / len(calls) for seconds in self._replays(graph.replay)])

    def plain(self, call: Call) -> Time | None:
        """Of a call that brings its own graph, or that no graph can hold: time on the card from
        its first kernel to its last."""
        if not self.measures:
            call()
            return None
        for _ in range(WARM_UP):
            call()
        return Time.of(self._replays(call))

    def wall(self, call: Call, rounds: int) -> Time | None:
        """Of a call from beginning to end as a user sees it, host and all."""
        call()
        if not self.measures:
            return None
        return Time.of([self._wall_once(call) for _ in range(rounds)])

    def _wall_once(self, call: Call) -> float:
        torch.cuda.synchronize(self.device)
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize(self.device)
        return time.perf_counter() - begun

    def _replays(self, call: Call) -> list[float]:
        pairs = []
        for _ in range(self.rounds):
            begin, end = _event(), _event()
            begin.record()
            call()
            end.record()
            pairs.append((begin, end))
        torch.cuda.synchronize(self.device)
        return [begin.elapsed_time(end) / 1_000 for begin, end in pairs]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def captured(calls: Sequence[Call]) -> torch.cuda.CUDAGraph:
    """All of them in one graph, after some on a stream of their own, as torch asks for."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            for call in calls:
                call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph
