"""Work on the first places, captured once for each of a few sizes and then replayed.

A CUDA graph starts some thousand kernels for the price of one, but its sizes are fixed: so there is
one for each `BUCKETS`, and work on three places is done by the graph of four.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

BUCKETS = (1, 2, 4, 8, 16)
"""Places. A decode step of a language model takes about as long for two as for one."""
_WARM_UPS = 2
"""The first run compiles or loads kernels, which a capture cannot; the second is as all later."""


def bucket_for(places: int) -> int:
    """The smallest bucket with so many."""
    return next(bucket for bucket in BUCKETS if bucket >= places)


class Capture(Protocol):
    """Records what work does on the device, without doing it. Gives what does it again."""

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]: ...


class Graphs:
    """`work(places)` by graphs, each captured when it is first needed."""

    def __init__(
        self,
        work: Callable[[int], None],
        warm_up: Callable[[int], None],
        capture: Capture | None = None,
    ) -> None:
        """`warm_up` runs the same kernels and changes nothing that counts."""
        self._work, self._warm_up = work, warm_up
        self._capture = capture or by_cuda
        self._kept: dict[int, Callable[[], None]] = {}

    def __call__(self, places: int) -> None:
        """Do the work on at least so many places."""
        bucket = bucket_for(places)
        replay = self._kept.get(bucket)
        if replay is None:
            for _ in range(_WARM_UPS):
                self._warm_up(bucket)
            replay = self._kept[bucket] = self._capture(lambda: self._work(bucket))
        replay()

    def forget(self) -> None:
        """Tensors that the work uses are others now."""
        self._kept.clear()


def by_cuda(work: Callable[[], None]) -> Callable[[], None]:
    """A CUDA graph of the work."""
    # Another thread of this process may use the device meanwhile, and must not break the capture.
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    replay: Callable[[], None] = graph.replay
    return replay
