"""Some decode steps in a row on the device: read, mask, choose, move the automaton, write down.

Nothing in it asks the host anything, so the steps can be one captured graph. A sequence that ends
among them does nothing in those that are left.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.ops.automaton import automaton_mask, automaton_step
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.devicestate import DeviceState
from conductor_kernels.runner.drawing import Drawing

_NO_TOKEN = -1


@dataclass(frozen=True, eq=False)
class Rules:
    """The automata of all requests, as `conductor_kernels.ops.automaton` takes them."""

    grammar: Tensor
    arena: Tensor


@torch.inference_mode()
def run_steps(decoder: Decoder, state: DeviceState, rules: Rules) -> None:
    """As many steps as `state.told` has room for."""
    for step in range(len(state.told)):
        run_step(decoder, state, rules, step)


def run_step(decoder: Decoder, state: DeviceState, rules: Rules, step: int) -> None:
    """One token more for all that go on."""
    goes_on = state.goes_on()
    hidden = decoder.decode(state.singles())
    bits, rows, count = automaton_mask(
        state.automaton, rules.grammar, rules.arena, decoder.shape.vocabulary
    )
    drawn = state.automaton[:, at.DRAWN]
    drawing = Drawing(bits, rows, count, state.temperatures, state.seeds, drawn)
    token, log_prob = decoder.choose(hidden, drawing)
    # A model that answers with what is no number has chosen nothing, and the automaton says so.
    token = torch.where(log_prob.isfinite(), token, _NO_TOKEN)
    automaton_step(state.automaton, token, rules.grammar, rules.arena)
    state.tell(step, goes_on, token, log_prob)
