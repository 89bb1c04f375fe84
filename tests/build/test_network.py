"""The network sees cards: order, padding and names of workers are nothing to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from conductor_build.pocket.network import Pocket
from conductor_build.pocket.state import KEEP, State
from support.training import FEATURES, random_state

OF_WORKERS = ("skill", "cost", "present", "asked", "answer", "pending")


@pytest.fixture(scope="module")
def pocket() -> Pocket:
    torch.manual_seed(1)
    made = Pocket(FEATURES, 3, hidden=16)
    with torch.no_grad():
        made.pointers[0].out.weight.mul_(20)  # a fresh pointer hardly says anything
    return made


def states(seed: int, workers: int = 6) -> State:
    return random_state(np.random.default_rng(seed), 200, workers, 3)


def at(state: State, place: Tensor) -> State:
    return state._replace(**{name: getattr(state, name)[:, place] for name in OF_WORKERS})


def blocks(pocket: Pocket, state: State) -> Tensor:
    """Scores [B, 4, K]."""
    with torch.no_grad():
        scores, _ = pocket(state)
    return scores.view(len(scores), 4, -1)


@pytest.mark.parametrize("seed", range(5))
def test_permuting_workers_permutes_the_scores_and_nothing_else(pocket: Pocket, seed: int) -> None:
    state = states(seed)
    place = torch.tensor(np.random.default_rng(seed).permutation(6))
    one, other = blocks(pocket, state)[:, :, place], blocks(pocket, at(state, place))
    assert torch.allclose(one[:, :KEEP], other[:, :KEEP], atol=1e-4, rtol=1e-5)
    assert (one[:, KEEP] > -1e8).any(1).sum() > 50
    assert torch.allclose(one[:, KEEP], other[:, KEEP], atol=1e-4, rtol=1e-5)


def test_padding_changes_nothing(pocket: Pocket) -> None:
    state = states(9)
    count = len(state.weight)
    padded = state._replace(
        skill=torch.cat([state.skill, torch.rand(count, 2, 3)], 1),
        cost=torch.cat([state.cost, torch.rand(count, 2, 3)], 1),
        present=torch.cat([state.present, torch.zeros(count, 2, dtype=torch.bool)], 1),
        asked=torch.cat([state.asked, torch.zeros(count, 2, dtype=torch.bool)], 1),
        answer=torch.cat([state.answer, torch.full((count, 2), -1)], 1),
        pending=torch.cat([state.pending, torch.zeros(count, 2, dtype=torch.bool)], 1),
    )
    one, other = blocks(pocket, state), blocks(pocket, padded)
    assert torch.allclose(one, other[:, :, :6], atol=1e-4, rtol=1e-5)
    assert (other[:, :, 6:] < -1e8).all()


def test_which_number_an_answer_has_says_nothing(pocket: Pocket) -> None:
    state = random_state(np.random.default_rng(4), 200, 6, 3)
    other = state._replace(answer=torch.where(state.answer >= 0, 90 - 7 * state.answer, -1))
    assert torch.equal(blocks(pocket, state), blocks(pocket, other))


def test_a_batch_is_nothing_but_its_rows(pocket: Pocket) -> None:
    state = states(5)
    alone = State(*(part[7:8] for part in state))
    assert torch.allclose(blocks(pocket, state)[7:8], blocks(pocket, alone), atol=1e-4, rtol=1e-5)


def test_lambda_turns_the_pointer_to_cheaper_workers(pocket: Pocket) -> None:
    """Two workers, one better, one cheaper: even a fresh pointer weighs them by lambda."""
    torch.manual_seed(0)
    fresh = Pocket(FEATURES, 1, hidden=8)
    state = State(
        prompt=torch.zeros(2, FEATURES),
        skill=torch.tensor([[[0.9], [0.6]]] * 2),
        cost=torch.tensor([[[10.0], [0.01]]] * 2),
        present=torch.ones(2, 2, dtype=torch.bool),
        asked=torch.zeros(2, 2, dtype=torch.bool),
        answer=torch.full((2, 2), -1),
        pending=torch.zeros(2, 2, dtype=torch.bool),
        weight=torch.tensor([0.001, 1.0]),
        rounds_left=torch.zeros(2, dtype=torch.int64),
        calls_left=torch.full((2,), 4),
        steps_left=torch.full((2,), 5),
    )
    assert (blocks(fresh, state).flatten(1).argmax(1) % 2).tolist() == [0, 1]


def test_the_grammar_offers_what_a_round_allows() -> None:
    """By hand: two workers free, one asked with an answer, one refused by policy."""

    def offered(**changes: object) -> list[list[bool]]:
        state = State(
            prompt=torch.zeros(1, FEATURES),
            skill=torch.full((1, 4, 1), 0.5),
            cost=torch.ones(1, 4, 1),
            present=torch.tensor([[True, True, True, False]]),
            asked=torch.tensor([[False, False, True, False]]),
            answer=torch.tensor([[-1, -1, 5, -1]]),
            pending=torch.zeros(1, 4, dtype=torch.bool),
            weight=torch.ones(1),
            rounds_left=torch.tensor([2]),
            calls_left=torch.tensor([3]),
            steps_left=torch.tensor([4]),
        )._replace(**changes)  # type: ignore[arg-type]
        with torch.no_grad():
            _, seen = Pocket(FEATURES, 1, hidden=4)(state)
        return seen.open.view(4, 4).tolist()  # type: ignore[no-any-return]

    free, kept, none = [True, True, False, False], [False, False, True, False], [False] * 4
    assert offered() == [free, free, none, kept]
    assert offered(rounds_left=torch.tensor([0])) == [none, none, free, kept]
    assert offered(calls_left=torch.tensor([1])) == [none, free, none, kept]
    assert offered(steps_left=torch.tensor([1])) == [none, free, none, kept]
    assert offered(calls_left=torch.tensor([0])) == [none, none, none, kept]
    assert offered(present=torch.tensor([[False, True, True, False]])) == [
        none, [False, True, False, False], none, kept,
    ]  # fmt: skip
    pending = torch.tensor([[True, False, False, False]])
    assert offered(pending=pending) == [none, [False, True, False, False], none, none]
