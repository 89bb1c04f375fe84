"""GRPO: advantages by hand, one step in the right direction, and a small problem that it solves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conductor.run.exchange import Limits
from conductor_build import grpo
from conductor_build.environment import Draw, deal, repeat
from conductor_build.grpo import Objective
from conductor_build.outcomes import Table
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.network import Pocket
from conductor_build.pocket.state import LAST
from support.outcomes import generated, table
from support.training import bare_deck, careless, dealt

ONCE = Limits(max_rounds=1, max_calls=2)


@pytest.mark.parametrize(
    ("objective", "wanted"),
    [
        (Objective(group=2, scale="group", spread_floor=0.5), [0.5, -0.5, 0, 0]),
        (Objective(group=2, scale="batch", spread_floor=0.5), [0.586, -0.586, 0, 0]),
        (Objective(group=4, scale="group", spread_floor=0.5), [0.586, -0.586, 0, 0]),
        (Objective(method="reinforce", group=2, spread_floor=0.5), [0.586, -0.586, 0, 0]),
    ],
)
def test_advantages_by_hand(objective: Objective, wanted: list[float]) -> None:
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.5])
    assert grpo.advantages(rewards, objective).tolist() == pytest.approx(wanted, abs=1e-3)


def test_equal_rewards_teach_nothing() -> None:
    for method in ("grpo", "reinforce"):
        for scale in ("group", "batch"):
            objective = Objective(method=method, scale=scale, group=4)  # type: ignore[arg-type]
            assert grpo.advantages(torch.full((8,), 0.7), objective).abs().max() < 1e-4


def test_a_group_is_measured_by_itself_alone() -> None:
    """A prompt on which everybody does well gives no credit for that."""
    easy_and_hard = torch.tensor([1.0, 1.0, 0.9, 1.0, 0.1, 0.0, 0.0, 0.0])
    advantage = grpo.advantages(easy_and_hard, Objective(group=4)).view(2, 4)
    assert advantage.sum(1).tolist() == pytest.approx([0, 0], abs=1e-5)
    assert advantage[1, 0] > 0 > advantage[0, 2]


def test_batch_scale_keeps_small_differences_small() -> None:
    """Right against wrong in one group, thousandths of cost in the other."""
    rewards = torch.tensor([1.0, 0.0, 0.801, 0.800])
    by_batch = grpo.advantages(rewards, Objective(group=2, scale="batch"))
    by_group = grpo.advantages(rewards, Objective(group=2, scale="group", spread_floor=1e-6))
    assert float(by_batch[2]) < 0.01 * float(by_batch[0])
    assert float(by_group[2]) == pytest.approx(float(by_group[0]), rel=0.02)


@pytest.mark.parametrize("method", ["grpo", "reinforce"])
def test_a_step_makes_a_rewarded_choice_likelier(method: grpo.Method) -> None:
    made, _ = generated(20)
    pocket, deck = bare_deck(made)
    optimiser = torch.optim.Adam(pocket.pointer_parameters(), lr=0.05)
    objective = Objective(method=method, entropy=0.0)
    generator = torch.Generator().manual_seed(0)
    rollout = grpo.roll_out(pocket, deck, repeat(dealt(deck, [0, 1], limits=ONCE), 32), generator)
    (moment,) = rollout.choices
    wanted = LAST * 4 + 2
    advantage = torch.where(moment.choice == wanted, 1.0, -1.0)
    assert 0 < (moment.choice == wanted).sum() < 64
    before = probability(pocket, moment, wanted)
    grpo.improve(pocket, optimiser, rollout, advantage, objective, generator)
    assert probability(pocket, moment, wanted) > before + 0.002


def probability(pocket: Pocket, moment: grpo.Choice, choice: int) -> float:
    with torch.no_grad():
        return float(torch.softmax(pocket.score(moment.seen, moment.present), 1)[:, choice].mean())


def test_a_clipped_ratio_stops_at_its_bound() -> None:
    """Pass after pass over one batch moves the policy hardly further than the clip allows."""
    made, _ = generated(20)
    moved = {}
    for clip in (0.05, 10.0):
        pocket, deck = bare_deck(made)
        optimiser = torch.optim.SGD(pocket.pointer_parameters(), lr=0.3)
        objective = Objective(clip=clip, entropy=0.0, passes=40, minibatches=1, max_gradient=100.0)
        generator = torch.Generator().manual_seed(0)
        rollout = grpo.roll_out(pocket, deck, repeat(dealt(deck, [0], limits=ONCE), 32), generator)
        (moment,) = rollout.choices
        advantage = torch.where(moment.choice == LAST * 4 + 2, 1.0, 0.0)
        before = probability(pocket, moment, LAST * 4 + 2)
        grpo.improve(pocket, optimiser, rollout, advantage, objective, generator)
        moved[clip] = probability(pocket, moment, LAST * 4 + 2) / before
    assert 1.0 < moved[0.05] < 1.2 < moved[10.0]


def test_no_closed_choice_is_ever_sampled() -> None:
    """Thousands of states, under every limit, pools with holes and refused workers among them."""
    made, _ = generated(60, workers=7)
    pocket, deck = bare_deck(made)
    careless(pocket)
    rng, states = np.random.default_rng(0), 0
    for seed in range(6):
        requests = deal(deck, Draw(pool=7, refused=0.3), 100, 4, range(7), rng)
        rollout = grpo.roll_out(pocket, deck, requests, torch.Generator().manual_seed(seed))
        for moment in rollout.choices:
            assert moment.seen.open.gather(1, moment.choice[:, None]).all()
            assert not (moment.seen.open.view(len(moment.choice), 4, -1)
                        & ~moment.present[:, None]).any()  # fmt: skip
            states += len(moment.choice)
    assert states > 5000


def test_greedy_play_needs_no_chance() -> None:
    made, _ = generated(30)
    pocket, deck = bare_deck(made)
    plans = [
        grpo.roll_out(pocket, deck, dealt(deck, list(range(30))), None).episodes.plans
        for _ in range(2)
    ]
    assert plans[0] == plans[1]


def lying_cards() -> tuple[Pocket, Deck, Table]:
    """The dear worker is always right and the cheap one never, and their cards say the same."""
    made = table([[0.0, 1.0]] * 16, [[1, 2]] * 16, prices=[1.0, 4.0])
    pocket, deck = bare_deck(made)
    deck.skill.fill_(0.5)
    return pocket, deck, made


@pytest.mark.parametrize(("method", "batches"), [("grpo", 40), ("reinforce", 120)])
def test_it_learns_whom_to_ask(method: grpo.Method, batches: int) -> None:
    pocket, deck, _ = lying_cards()
    optimiser = torch.optim.Adam(pocket.pointer_parameters(), lr=0.01)
    critic = torch.optim.Adam(pocket.appraise.parameters(), lr=0.003)
    objective = Objective(method=method, estimated=0.0, prompts=8, group=8)
    generator = torch.Generator().manual_seed(0)
    requests = repeat(dealt(deck, list(range(8)), weight=0.05, limits=ONCE), 8)
    course = [
        grpo.step(pocket, optimiser, critic, deck, requests, objective, generator)
        for _ in range(batches)
    ]
    assert course[0].quality < 0.6
    greedy = grpo.roll_out(pocket, deck, dealt(deck, list(range(16)), 0.05, ONCE), None)
    assert greedy.episodes.quality().mean() == 1.0
    assert course[-1].reward > course[0].reward + 0.2


def test_it_learns_to_ask_nobody_who_costs_more_than_an_answer_is_worth() -> None:
    pocket, deck, _ = lying_cards()
    optimiser = torch.optim.Adam(pocket.pointer_parameters(), lr=0.01)
    critic = torch.optim.Adam(pocket.appraise.parameters(), lr=0.003)
    generator = torch.Generator().manual_seed(0)
    requests = repeat(dealt(deck, list(range(8)), weight=0.4, limits=ONCE), 8)
    for _ in range(40):
        objective = Objective(estimated=0.0, prompts=8, group=8)
        grpo.step(pocket, optimiser, critic, deck, requests, objective, generator)
    greedy = grpo.roll_out(pocket, deck, dealt(deck, list(range(16)), 0.4, ONCE), None)
    assert greedy.episodes.cost().tolist() == pytest.approx([1.0] * 16)  # 1 - 1.6 is less than -0.4
