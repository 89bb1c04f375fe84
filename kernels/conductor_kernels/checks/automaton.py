"""The automaton on the device beside the host's, along random plans: masks, lists, states, ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial

import torch
from torch import Tensor

from conductor.core import Flow
from conductor.plan.automaton import Automaton, State, Tables, compile
from conductor.plan.mask import LabelMask
from conductor.plan.validate import PlanPool
from conductor_kernels.checks.case import EXACT, Case
from conductor_kernels.devicetables import Arena, Block, DeviceTables

_WALKERS = 8
_STEPS = {False: 20, True: 2_500}
"""Times `_WALKERS`, prefixes."""
_MOST_TOKENS = 120
_WORDS = (b" the", b" a", b"Solve", b" it.", b"1 q", b" -\n", b"redact", b" vo", b"te ", b" S",
          b"\xc3\xa9", b" 0,", b"q,0 ", b"Check the")  # fmt: skip
"""Across words and characters, within a line."""
_END = 256 + len(_WORDS)
_NARROW = LabelMask(
    Flow(
        question=1, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
        sees=(frozenset({0, 1, 2}), frozenset({1})),
    )
)  # fmt: skip
_POOLS = {
    "seven workers": PlanPool(7),
    "three workers under labels": PlanPool(3, max_steps=3, mask=_NARROW),
    "one worker": PlanPool(1, max_steps=1),
}


def cases() -> Iterator[Case]:
    """One a pool."""
    for name in _POOLS:
        for large, steps in _STEPS.items():
            told = f"{name}, {steps * _WALKERS} prefixes that differ from the host's"
            measure = partial(_differing, name, steps)
            yield Case("automaton", told, torch.int32, EXACT, measure, large)


@cache
def _tables() -> Tables:
    return compile([*(bytes([byte]) for byte in range(256)), *_WORDS, None], [_END])


@dataclass
class _Walker:
    """One plan on the host."""

    automaton: Automaton
    state: State = field(init=False)
    run: list[int] = field(init=False)
    """What is forced next."""
    written: int = 0

    def __post_init__(self) -> None:
        self.state = self.automaton.start()
        self.run = self.automaton.forced(self.state)

    def allowed(self) -> list[int]:
        """Ids, rising."""
        if self.run:
            return self.run[:1]
        mask = self.automaton.allowed(self.state)
        return [token for token in range(_END + 1) if mask[token // 8] >> token % 8 & 1]

    def take(self, token: int) -> None:
        self.state = self.automaton.advance(self.state, token)
        self.run = self.run[1:] or self.automaton.forced(self.state)
        self.written += 1

    @property
    def ended(self) -> bool:
        return self.written >= _MOST_TOKENS or not any(self.automaton.allowed(self.state))


def _differing(pool: str, steps: int, device: torch.device, seed: int) -> float:
    """Prefixes after which device and host do not agree. Walks end at the first one."""
    from conductor_kernels.ops.automaton import automaton_mask, automaton_step

    chance = random.Random(seed)  # noqa: S311  no secret
    automaton = Automaton(_tables(), _POOLS[pool])
    tables, arena = DeviceTables(_tables()), Arena(1 << 18, device)
    block = tables.block(_POOLS[pool], automaton)
    base = None if block is None else arena.place(block)
    if block is None or base is None:
        raise ValueError("the device does not take this pool")
    grammar, begin = tables.grammar.to(device), _row(block, base)
    walkers = [_Walker(automaton) for _ in range(_WALKERS)]
    state = begin.repeat(_WALKERS, 1).to(device)
    different = 0
    for _ in range(steps):
        bits, rows, count = automaton_mask(state, grammar, arena.cells, _END + 1)
        wanted = [walker.allowed() for walker in walkers]
        different += sum(map(_differs, wanted, bits.cpu(), rows.cpu(), count.cpu()))
        tokens = [chance.choice(allowed) for allowed in wanted]
        automaton_step(state, torch.tensor(tokens, device=device).int(), grammar, arena.cells)
        for walker, token in zip(walkers, tokens, strict=True):
            walker.take(token)
        different += _ended(walkers, state, begin, automaton)
    return float(different)


def _row(block: Block, base: int) -> Tensor:
    return torch.tensor([block.state(base, _MOST_TOKENS)]).int()


def _ended(walkers: list[_Walker], state: Tensor, begin: Tensor, automaton: Automaton) -> int:
    """Start those that ended anew; gives how many ended on one side alone."""
    from conductor_kernels.ops.automaton_layout import ENDED

    told, wrong = state[:, ENDED].tolist(), 0
    for at, walker in enumerate(walkers):
        wrong += bool(told[at]) != walker.ended
        if told[at] or walker.ended:
            walkers[at] = _Walker(automaton)
            state[at] = begin[0].to(state.device)
    return wrong


def _differs(wanted: list[int], bits: Tensor, rows: Tensor, count: Tensor) -> bool:
    found = (bits[:, None] >> torch.arange(32) & 1).flatten().nonzero()[:, 0].tolist()
    listed = rows[: int(count)].tolist() if count >= 0 else wanted
    return found != wanted or listed != wanted
