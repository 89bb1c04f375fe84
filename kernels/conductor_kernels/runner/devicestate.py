"""What a GPU knows of the plans that it writes: tensors of fixed size and place, so that a captured
graph finds them again.

A sequence has a place, a row of each tensor. The host writes a row when a sequence joins or leaves;
all between is the device's own. A place that has ended, or that nobody has, stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from conductor.plan.prompt import BLOCK_TOKENS
from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.runner.step import Singles

TOKEN, LOG_PROB, FORCED, ENDED = range(4)
"""What is told of each written token: its id, or -1 where none was written; the bits of a float32;
0 or 1; and its automaton's `ENDED` after it."""
_TOLD = 4


@dataclass(frozen=True, eq=False)
class DeviceState:
    """P places, K steps a launch, M blocks of the longest sequence."""

    automaton: Tensor
    """[P, STATE] int32, see `ops/automaton_layout.py`."""
    tokens: Tensor
    """[P] int32: the last of each sequence, which the model has yet to read,"""
    positions: Tensor
    """[P] int32: and where it stands."""
    blocks: Tensor
    """[P, M] int32: for the longest plan that may come, so they stay."""
    temperatures: Tensor
    """[P] float32"""
    seeds: Tensor
    """[P] int64; below 0: the likeliest token."""
    told: Tensor
    """[K, 4, P] int32: what one launch wrote."""

    @classmethod
    def empty(cls, places: int, blocks: int, steps: int, device: torch.device) -> DeviceState:
        """All places free."""

        def zeros(*sizes: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(sizes, dtype=dtype, device=device)

        state = cls(
            zeros(places, at.STATE),
            zeros(places),
            zeros(places),
            zeros(places, blocks),
            torch.ones(places, device=device),
            zeros(places, dtype=torch.int64),
            zeros(steps, _TOLD, places),
        )
        state.clear()
        return state

    def first(self, places: int, blocks: int) -> DeviceState:
        """The first places, and the first blocks of each: the same memory."""
        return DeviceState(
            self.automaton[:places],
            self.tokens[:places],
            self.positions[:places],
            self.blocks[:places, :blocks],
            self.temperatures[:places],
            self.seeds[:places],
            self.told[:, :, :places],
        )

    def goes_on(self) -> Tensor:
        """[P] bool: who is still being written."""
        return self.automaton[:, at.ENDED] == 0

    def singles(self) -> Singles:
        """The decode step that reads the last tokens. Others than those that go on have slot -1 and
        length 0."""
        goes_on = self.goes_on()
        block = self.blocks.gather(1, (self.positions // BLOCK_TOKENS).long()[:, None])[:, 0]
        slots = block * BLOCK_TOKENS + self.positions % BLOCK_TOKENS
        return Singles(
            self.tokens,
            self.positions,
            torch.where(goes_on, slots, -1),
            self.blocks,
            torch.where(goes_on, self.positions + 1, 0),
        )

    def tell(self, step: int, goes_on: Tensor, token: Tensor, log_prob: Tensor) -> None:
        """Keep what the step wrote, and have those who still go on read it next. `goes_on` [P]: who
        did before the step. The automaton has taken the token."""
        told = self.told[step]
        told[TOKEN].copy_(torch.where(goes_on, token, -1))
        told[LOG_PROB].copy_(log_prob.view(torch.int32))
        told[FORCED].copy_(self.automaton[:, at.FORCED])
        told[ENDED].copy_(self.automaton[:, at.ENDED])
        # Who has ended stays where it was: what came may be no token of the model, and the place
        # after it beyond its blocks.
        still = self.goes_on()
        self.positions.add_(still)
        self.tokens.copy_(torch.where(still, token, self.tokens))

    def free(self, place: int) -> None:
        """Nobody has it any more. Its blocks may be another's by now, so it must not go on; its
        position may be beyond them when the table is cut."""
        self.automaton[place, at.ENDED] = at.OVER
        self.positions[place] = 0
        self.tokens[place] = 0

    def clear(self) -> None:
        """All places are free."""
        self.automaton[:, at.ENDED] = at.OVER
        self.positions.zero_()
        self.tokens.zero_()

    def move(self, place: int, to: int) -> None:
        """A sequence gets another place."""
        rows = (self.automaton, self.tokens, self.positions, self.blocks, self.temperatures,
                self.seeds)  # fmt: skip
        for one in rows:
            one[to].copy_(one[place])
        self.free(place)
