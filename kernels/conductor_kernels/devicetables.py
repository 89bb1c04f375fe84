"""The plan automaton for the device: a tokenizer's tables, and room for what requests permit.

`DeviceTables` is one model's; `Arena` is the memory that its captured graphs read, in which blocks
of requests come and go. Requests with equal pools share a block. A request that the device cannot
take (`block` gives None) is written with the host's automaton.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import torch
from torch import Tensor

from conductor.plan.automaton import Automaton
from conductor.plan.tokentables import Tables
from conductor.plan.validate import PlanPool
from conductor_kernels.deviceblock import Block, block_of
from conductor_kernels.devicegrammar import crosses_lines, forced_nodes, grammar_of
from conductor_kernels.deviceruns import Run

__all__ = ["Arena", "Block", "DeviceTables"]

_KEPT = 64
"""Blocks that are kept for the next request with such a pool; 2 MB each at most."""


class DeviceTables:
    """Of one tokenizer. For one thread."""

    def __init__(self, tables: Tables) -> None:
        self._refused = crosses_lines(tables)
        self.grammar: Tensor = grammar_of(tables)
        """int32, as the ops take it; on the CPU."""
        self._nodes = forced_nodes(tables)
        self._shared: dict[Hashable, Run] = {}
        self._blocks: OrderedDict[PlanPool, Block | None] = OrderedDict()

    def block(self, pool: PlanPool, automaton: Automaton) -> Block | None:
        """What the pool's automaton permits. None when the device cannot take it. All automata have
        to spell alike, by this tokenizer."""
        if self._refused:
            return None
        if pool not in self._blocks:
            self._blocks[pool] = block_of(automaton, self._nodes, self._shared)
            if len(self._blocks) > _KEPT:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(pool)
        return self._blocks[pool]


class Arena:
    """Cells on the device, and which blocks lie where. For one thread."""

    def __init__(self, cells: int, device: torch.device) -> None:
        self.cells = torch.zeros(cells, dtype=torch.int32, device=device)
        """int32 [A]. The same memory for ever, so that captured graphs may read it."""
        self._placed: dict[Block, tuple[int, int]] = {}
        """Where a block begins, and how many sequences read it."""

    def place(self, block: Block) -> int | None:
        """Where the block begins, from now until as many calls of `leave`. None: no room."""
        base, readers = self._placed.get(block, (None, 0))
        if base is None:
            base = self._room(len(block))
            if base is None:
                return None
            self.cells[base : base + len(block)].copy_(block.placed(base))
        self._placed[block] = base, readers + 1
        return base

    def leave(self, block: Block) -> None:
        """One sequence fewer reads it."""
        base, readers = self._placed.pop(block)
        if readers > 1:
            self._placed[block] = base, readers - 1

    def _room(self, size: int) -> int | None:
        """The first gap that is large enough. Cell 0 is nobody's."""
        end = 1
        for block, (base, _) in sorted(self._placed.items(), key=lambda placed: placed[1][0]):
            if base - end >= size:
                break
            end = base + len(block)
        return end if end + size <= len(self.cells) else None
