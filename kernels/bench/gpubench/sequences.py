"""Sequences in the middle of a plan, as the device holds them."""

from __future__ import annotations

import torch

from conductor_kernels.devicetables import Arena
from conductor_kernels.ops.automaton import automaton_step
from conductor_kernels.runner.cache import blocks_for
from conductor_kernels.runner.devicestate import DeviceState
from conductor_kernels.runner.drawing import GREEDY
from conductor_kernels.runner.loop import Rules
from gpubench.model import POOL, language
from gpubench.parts import Bench

_BEGUN = b"0 q the"
"""Into the text of the first step; single bytes are their own ids."""
_CELLS = 1 << 20
_MOST = 1 << 20
"""Tokens that a plan may have: none ends here."""


def begun(bench: Bench, batch: int, steps: int) -> tuple[DeviceState, Rules]:
    """A batch in a worker's subtask, with the context of the benchmark behind it and room for
    `steps` more tokens; and the automaton's tables."""
    device, context = bench.device, bench.sizes.context
    blocks = blocks_for(context + steps + 1)
    state = DeviceState.empty(batch, blocks, steps, device)
    state.blocks.copy_(torch.arange(batch * blocks).view(batch, blocks))
    spoken, arena = language(bench.sizes.shape.vocabulary), Arena(_CELLS, device)
    block = spoken.device_tables.block(POOL, spoken.automaton)
    base = None if block is None else arena.place(block)
    if block is None or base is None:
        raise ValueError("the device does not take a pool of seven workers")
    state.automaton.copy_(torch.tensor(block.state(base, _MOST)).int())
    grammar = spoken.device_tables.grammar.to(device)
    for byte in _BEGUN:
        token = state.tokens.new_full((batch,), byte)
        automaton_step(state.automaton, token, grammar, arena.cells)
    state.positions.fill_(context - 1)
    state.tokens.fill_(_BEGUN[-1])
    state.seeds.fill_(GREEDY)
    return state, Rules(grammar, arena.cells)
