"""What the device has to know of a request's pool, made beside the thread that runs the model.

For a pool that nobody asked with before it takes some tenths of a second, in which no plan would be
written. So the first request of such a pool is the host's, which writes the same plan.
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Executor, Future

from conductor.plan.automaton import Automaton
from conductor.plan.validate import PlanPool
from conductor_kernels.devicetables import Block, DeviceTables

_KEPT = 64
"""Pools, as many as `DeviceTables` keeps."""


class Blocks:
    """Of one tokenizer. For one thread."""

    def __init__(self, tables: DeviceTables, builder: Executor | None) -> None:
        """`builder` has one thread, which alone works with `tables`; None: who asks waits."""
        self._tables, self._builder = tables, builder
        self._made: OrderedDict[PlanPool, Future[Block | None]] = OrderedDict()

    def of(self, automaton: Automaton) -> Block | None:
        """What its pool permits; None: more than the device takes, or not made yet."""
        pool = automaton.pool
        if self._builder is None:
            return self._tables.block(pool, automaton)
        if pool not in self._made:
            self._made[pool] = self._builder.submit(self._tables.block, pool, automaton)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)[1].cancel()
        self._made.move_to_end(pool)
        made = self._made[pool]
        return made.result() if made.done() else None
