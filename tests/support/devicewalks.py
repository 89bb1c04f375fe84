"""The host's automaton and the device's, side by side, along the same plan."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from conductor.plan.automaton import Automaton, State, Tables
from conductor.plan.forcing import Encode
from conductor.plan.validate import PlanPool
from conductor_kernels.devicetables import Arena, Block, DeviceTables
from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.ops.automaton import MOST_ROWS, automaton_mask, automaton_step
from support.automata import Vocabulary, ids_in, pick


@dataclass
class Plan:
    """One plan on the host."""

    automaton: Automaton
    state: State
    run: list[int]
    """Forced tokens that are still to come."""
    ended: bool = False

    @classmethod
    def of(cls, automaton: Automaton) -> Plan:
        return cls(automaton, automaton.start(), automaton.forced(automaton.start()))

    @property
    def allowed(self) -> frozenset[int]:
        if self.ended:
            return frozenset()
        return frozenset(self.run[:1]) or ids_in(self.automaton.allowed(self.state))

    def mask(self, words: int) -> bytes:
        """What may come next, as the device has it."""
        if self.ended or self.run:
            run = sum(1 << token for token in self.run[:1])
            return run.to_bytes(4 * words, "little")
        return self.automaton.allowed(self.state)

    def take(self, token: int) -> None:
        self.state = self.automaton.advance(self.state, token)
        if self.run:
            assert self.run.pop(0) == token
        else:
            self.run = self.automaton.forced(self.state)
        self.ended = not any(self.automaton.allowed(self.state))


@dataclass
class SideBySide:
    """Plans of several pools at once, all in one arena."""

    tables: Tables
    pools: list[PlanPool]
    vocabulary: Vocabulary
    encode: Encode | None = None
    cells: int = 1 << 20
    device: DeviceTables = field(init=False)
    plans: list[Plan] = field(init=False)
    state: Tensor = field(init=False)
    blocks: list[Block] = field(init=False)
    arena: Arena = field(init=False)

    def __post_init__(self) -> None:
        self.device = DeviceTables(self.tables)
        self.arena = Arena(self.cells, torch.device("cpu"))
        self.begin()

    def begin(self) -> None:
        """Every pool's next plan."""
        automata = [Automaton(self.tables, pool, self.encode) for pool in self.pools]
        blocks = [self.device.block(*pair) for pair in zip(self.pools, automata, strict=True)]
        self.blocks = [block for block in blocks if block is not None]
        assert len(self.blocks) == len(blocks), "a pool is too large"
        self.plans = [Plan.of(automaton) for automaton in automata]
        self.state = torch.tensor([self._begun(block) for block in self.blocks], dtype=torch.int32)

    def leave(self) -> None:
        """Make room for the next plans."""
        for block in self.blocks:
            self.arena.leave(block)

    def _begun(self, block: Block) -> list[int]:
        base = self.arena.place(block)
        assert base is not None
        return block.state(base, 10_000)

    def check(self) -> None:
        """What may come next, in every plan."""
        size = len(self.vocabulary)
        bits, rows, count = automaton_mask(self.state, self.device.grammar, self.arena.cells, size)
        for number, plan in enumerate(self.plans):
            mask, listed = plan.mask(bits.shape[1]), int(count[number])
            assert bits[number].numpy().tobytes() == mask, plan.state
            if listed >= 0:
                assert rows[number, :listed].tolist() == sorted(ids_in(mask))
                assert listed <= MOST_ROWS
            else:
                assert plan.state.worded and not plan.run and not plan.ended

    def take(self, choose: Callable[[Plan], int]) -> None:
        """One token in every plan that has not ended."""
        tokens = [-1 if plan.ended else choose(plan) for plan in self.plans]
        for plan, token in zip(self.plans, tokens, strict=True):
            if not plan.ended:
                plan.take(token)
        automaton_step(self.state, torch.tensor(tokens, dtype=torch.int32), self.device.grammar,
                       self.arena.cells)  # fmt: skip
        for plan, row in zip(self.plans, self.state.tolist(), strict=True):
            compare(plan, row)

    @property
    def going(self) -> bool:
        return not all(plan.ended for plan in self.plans)


def compare(plan: Plan, row: list[int]) -> None:
    """The numbers of a state."""
    state = plan.state
    assert bool(row[at.ENDED]) == plan.ended, (state, row)
    assert row[at.ENDED] != at.REFUSED
    if plan.ended:
        return
    ours = row[at.PLACE], row[at.VIEW], row[at.USED], row[at.NODE], row[at.ROW] > 0, row[at.RUN] > 0
    theirs = (state.place, state.view, state.used, state.node, state.row is not None,
              bool(plan.run))  # fmt: skip
    assert ours == theirs, (state, row, plan.run)


def any_token(chance: random.Random, vocabulary: Vocabulary, eos: int) -> Callable[[Plan], int]:
    """Chooses evenly over kinds of token, and ends a plan seldom."""

    def choose(plan: Plan) -> int:
        allowed = plan.allowed
        if allowed - {eos} and (eos not in allowed or chance.random() < 0.8):
            return pick(chance, allowed - {eos}, vocabulary)
        return eos

    return choose
