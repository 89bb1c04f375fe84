"""What the device knows of its plans moves as it should, and stays where nobody is."""

from __future__ import annotations

import pytest
import torch

from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.runner.devicestate import ENDED, FORCED, LOG_PROB, TOKEN, DeviceState

STEPS = 2


@pytest.fixture
def state() -> DeviceState:
    """Three places of four: the second has ended."""
    made = DeviceState.empty(4, 3, STEPS, torch.device("cpu"))
    made.automaton[:3, at.ENDED] = torch.tensor([0, at.OVER, 0])
    made.automaton[0, at.FORCED] = 1
    made.tokens[:3] = torch.tensor([7, 8, 9])
    made.positions[:3] = torch.tensor([31, 5, 64])
    made.blocks[:3] = torch.tensor([[4, 5, 6], [1, 2, 3], [9, 8, 7]])
    made.seeds[:3] = torch.tensor([-1, 5, 6])
    return made


def test_who_goes_on_reads_its_last_token_at_its_slot(state: DeviceState) -> None:
    step = state.singles()
    assert step.slots.tolist() == [4 * 32 + 31, -1, 7 * 32, -1]
    assert step.lengths.tolist() == [32, 0, 65, 0]
    assert (step.tokens[0], step.positions[2]) == (7, 64)
    for one in vars(step).values():
        assert one.dtype == torch.int32


def test_a_step_is_told_and_moves_those_that_still_go_on(state: DeviceState) -> None:
    went_on = state.goes_on()
    state.automaton[2, at.ENDED] = at.REFUSED
    token = torch.tensor([11, 12, -1, 13], dtype=torch.int32)
    state.tell(1, went_on, token, torch.tensor([-0.5, 0.0, float("nan"), 0.0]))
    told = state.told[1]
    assert told[TOKEN].tolist() == [11, -1, -1, -1]
    assert told[LOG_PROB].view(torch.float32)[0] == -0.5
    assert told[FORCED, 0] == 1 and told[ENDED].tolist() == [0, at.OVER, at.REFUSED, at.OVER]
    assert state.positions.tolist() == [32, 5, 64, 0]
    assert state.tokens.tolist() == [11, 8, 9, 0]
    assert not state.told[0].any()


def test_a_place_that_is_left_does_nothing_even_with_fewer_blocks(state: DeviceState) -> None:
    state.free(2)
    step = state.first(3, 2).singles()
    assert step.slots.tolist() == [4 * 32 + 31, -1, -1] and step.lengths[2] == 0
    assert step.blocks.shape == (3, 2)


def test_a_sequence_moves_with_all_that_it_has(state: DeviceState) -> None:
    state.move(2, 1)
    assert state.goes_on().tolist() == [True, True, False, False]
    assert (state.tokens[1], state.positions[1], state.seeds[1]) == (9, 64, 6)
    assert state.blocks[1].tolist() == [9, 8, 7]
