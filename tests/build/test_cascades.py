"""Cascades to copy: which is chosen, how it is played by hand, and that it is learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from conductor.run.exchange import Limits
from conductor_build import cascades, grpo
from conductor_build.environment import Draw, Hand, deal
from conductor_build.grounds import Ground
from conductor_build.grpo import Objective
from conductor_build.pocket.network import Pocket
from support.outcomes import generated, table
from support.training import bare_deck, dealt

MANY = Limits(max_rounds=5, max_calls=5)


def lesson(scores: list[list[float]], answers: list[list[int]], prices: list[float],
           tasks: list[str] | None = None) -> tuple[Pocket, cascades.Lesson]:  # fmt: skip
    pocket, deck = bare_deck(table(scores, answers, prices=prices, tasks=tasks))
    (found,) = cascades.lessons([Ground(deck, tuple(range(len(prices))), 1.0)])
    return pocket, found


def names(found: cascades.Lesson, dealt: Hand) -> list[list[int]]:
    return [[int(p) for p in row if p >= 0] for row in found.best(found.ground.deck, dealt)]


# Two cheap ones agree when they are right and differ when not; the dear one is always right.
SCORES = [[1.0, 1.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
ANSWERS = [[9, 9, 9], [1, 2, 9], [9, 9, 9], [1, 2, 9]]


@pytest.mark.parametrize(
    ("weight", "limits", "wanted"),
    [
        (0.01, MANY, [0, 1, 2]),  # the cheaper of the pair first
        (0.6, MANY, [0]),
        (0.01, Limits(max_rounds=5, max_calls=2), [2]),  # no third call
        (0.01, Limits(max_rounds=1, max_calls=5), [2]),  # no look
    ],
)
def test_the_best_strategy_by_hand(weight: float, limits: Limits, wanted: list[int]) -> None:
    _, found = lesson(SCORES, ANSWERS, [0.5, 1.0, 20.0])
    assert names(found, dealt(found.ground.deck, [0], weight, limits)) == [wanted]


def test_it_hangs_on_the_domain_and_on_who_is_there() -> None:
    _, found = lesson(
        [[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4, [[1, 2]] * 8, [1.0, 1.0], ["x"] * 4 + ["y"] * 4
    )
    deck = found.ground.deck
    assert names(found, dealt(deck, [0, 4])) == [[0], [1]]
    hand = dealt(deck, [0, 4])
    gone = replace(hand, present=torch.tensor([[False, True], [True, False]]))
    assert names(found, gone) == [[1], [0]]
    turned = replace(hand, columns=torch.tensor([[1, 0], [1, 0]]))
    assert names(found, turned) == [[1], [0]]


def test_what_it_plays_is_what_the_strategy_gives() -> None:
    pocket, found = lesson(SCORES, ANSWERS, [0.5, 1.0, 20.0])
    optimiser = torch.optim.SGD(pocket.pointer_parameters(), lr=0.0)
    requests = dealt(found.ground.deck, [0, 1, 2, 3], 0.01, MANY)
    figures = cascades.copy(
        found, pocket, optimiser, optimiser, found.ground.deck, requests, Objective(),
        torch.Generator(),
    )  # fmt: skip
    assert figures.calls == 2.5
    assert figures.cost_usd_per_1k == pytest.approx(1.5 + 10.0)


def test_a_policy_learns_it() -> None:
    made, _ = generated(60, workers=5)
    pocket, deck = bare_deck(made)
    (found,) = cascades.lessons([Ground(deck, tuple(range(5)), 1.0)])
    optimiser = torch.optim.Adam(pocket.pointer_parameters(), lr=0.01)
    objective, rng = Objective(prompts=32, group=1), np.random.default_rng(0)
    losses = []
    for _ in range(60):
        requests = deal(deck, Draw(pool=5), 32, 1, range(5), rng)
        losses.append(
            cascades.copy(
                found, pocket, optimiser, optimiser, deck, requests, objective, torch.Generator()
            ).loss
        )
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])


def test_small_pools_of_comparable_answers_are_preferred() -> None:
    made, _ = generated(30, workers=4)
    _, deck = bare_deck(made)
    mute = replace(deck, comparable=torch.zeros(30, dtype=torch.bool))
    found = cascades.lessons([Ground(mute, (0, 1), 1.0), Ground(deck, (0, 1, 2), 0.5)])
    assert [one.share for one in found] == [0.5]


def test_without_comparable_answers_single_workers_are_copied() -> None:
    made, _ = generated(30, workers=4)
    _, deck = bare_deck(made)
    mute = replace(deck, comparable=torch.zeros(30, dtype=torch.bool))
    (found,) = cascades.lessons([Ground(mute, (0, 1, 2, 3), 1.0)])
    assert found.order.shape == (4, 4)
    assert (found.length == 1).all()


def test_a_large_pool_is_cut_down_to_its_best_workers() -> None:
    made = table(
        [[place / 20 for place in range(20)]] * 3, [[*range(20)]] * 3, prices=[0.001] * 20,
        names=[f"w{place}" for place in range(20)],
    )  # fmt: skip
    _, deck = bare_deck(made)
    (found,) = cascades.lessons([Ground(deck, tuple(range(20)), 1.0)])
    assert found.ground.columns == tuple(range(6, 20))


def test_missing_outcomes_are_left_out_and_a_worker_without_any_is_chosen_last() -> None:
    _, found = lesson(
        [[0.0, float("nan"), 1.0]] * 3 + [[1.0, float("nan"), float("nan")]],
        [[1, -1, 2]] * 3 + [[1, -1, -1]], [1.0, 1.0, 1.0],
    )  # fmt: skip
    alone = found.length == 1
    assert found.score[alone][:, 0].tolist() == pytest.approx(
        [0.25, float("nan"), 1.0], nan_ok=True
    )
    hand = dealt(found.ground.deck, [0, 0])
    assert names(found, hand)[0] == [2]
    lonely = replace(hand, present=torch.tensor([[False, True, False]] * 2))
    assert names(found, lonely) == [[1], [1]]


def test_a_greedy_learner_plays_it() -> None:
    pocket, found = lesson(SCORES * 4, ANSWERS * 4, [0.5, 1.0, 20.0])
    deck = found.ground.deck
    optimiser = torch.optim.Adam(pocket.pointer_parameters(), lr=0.02)
    requests = dealt(deck, list(range(16)), 0.01, MANY)
    for _ in range(80):
        cascades.copy(
            found, pocket, optimiser, optimiser, deck, requests, Objective(), torch.Generator()
        )
    rollout = grpo.roll_out(pocket, deck, requests, None)
    assert rollout.episodes.quality().mean() == 1.0
    assert rollout.episodes.asked.sum(1).float().mean() == 2.5
