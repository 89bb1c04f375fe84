"""The tree: values are what playing gives, a small problem is solved, nothing closed is opened."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from conductor.run.exchange import Limits
from conductor_build import grpo, tree
from conductor_build.environment import Draw, deal, repeat
from conductor_build.grpo import Objective
from conductor_build.reward import RewardWeights
from support.outcomes import generated, table
from support.training import bare_deck, careless, dealt

ALL = Objective(group=1, prune=1e-6, weights=RewardWeights(per_round=0.01))
ONCE = Limits(max_rounds=1, max_calls=2)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def decided() -> tuple[grpo.Pocket, grpo.Deck]:
    """A policy that hardly ever draws anything but its first choice."""
    made, _ = generated(60, workers=5)
    pocket, deck = bare_deck(made)
    with torch.no_grad():
        for pointer in pocket.pointers:
            pointer.sharpness.fill_(3000.0)
            pointer.out.weight.mul_(3000.0)
    return pocket, deck


def test_a_decided_policy_earns_what_playing_it_gives() -> None:
    pocket, deck = decided()
    rng = np.random.default_rng(0)
    requests = deal(deck, Draw(pool=5, max_rounds=(1, 5)), 200, 1, range(5), rng)
    rollout = grpo.roll_out(pocket, deck, requests, None)
    played = grpo.rewards(rollout, ALL)[1]
    first = tree.grow(pocket, deck, requests, ALL, seeded())[0]
    off = (tree.earned(first) - played).abs()
    sure = first.log.exp().max(1).values > 0.999
    assert float(sure.float().mean()) > 0.7
    assert float((off[sure] < 1e-3).float().mean()) > 0.85  # the others waver later on
    figures = (first.weight[:, :, None] * first.parts).sum(1).mean(0)
    calls = float(rollout.episodes.asked.sum(1).float().mean())
    assert float(figures[2]) == pytest.approx(calls, rel=0.05)
    assert float(figures[3]) == pytest.approx(float(rollout.episodes.rounds().mean()), rel=0.05)


def test_a_wavering_policy_earns_what_playing_it_gives_on_average() -> None:
    made, _ = generated(30, workers=4)
    pocket, deck = bare_deck(made)
    careless(pocket)
    requests = dealt(deck, [0, 1, 2, 3], 0.05, Limits(max_rounds=4, max_calls=4))
    many = grpo.roll_out(pocket, deck, repeat(requests, 2000), seeded())
    played = grpo.rewards(many, ALL)[1].view(4, 2000)
    error = played.std(1) / 2000**0.5
    earned = tree.earned(tree.grow(pocket, deck, requests, ALL, seeded())[0])
    assert ((earned - played.mean(1)).abs() < 4 * error + 1e-4).all()


def test_pruning_moves_no_value_in_one_direction() -> None:
    made, _ = generated(30, workers=5)
    pocket, deck = bare_deck(made)
    careless(pocket)
    requests = dealt(deck, list(range(20)), 0.05)
    whole = tree.earned(tree.grow(pocket, deck, requests, ALL, seeded())[0]).mean()
    pruned = [
        float(
            tree.earned(
                tree.grow(pocket, deck, requests, Objective(group=1, prune=0.1,
                          weights=ALL.weights), seeded(seed))[0]
            ).mean()
        )
        for seed in range(40)
    ]  # fmt: skip
    assert np.mean(pruned) == pytest.approx(float(whole), abs=4 * np.std(pruned) / 40**0.5 + 0.003)


def test_chances_of_a_level_are_those_of_the_choices_before_it() -> None:
    made, _ = generated(30, workers=4)
    pocket, deck = bare_deck(made)
    careless(pocket)
    levels = tree.grow(pocket, deck, dealt(deck, list(range(10))), ALL, seeded())
    for before, after in itertools.pairwise(levels):
        going_on = (before.reach[:, None] * before.weight)[before.parents].sum()
        assert float(after.reach.sum()) == pytest.approx(float(going_on), rel=1e-4)
        assert len(torch.unique(before.child)) == len(after.reach)


def test_nothing_closed_is_opened() -> None:
    made, _ = generated(60, workers=7)
    pocket, deck = bare_deck(made)
    careless(pocket)
    rng = np.random.default_rng(0)
    for seed in range(4):
        requests = deal(deck, Draw(pool=7, refused=0.3), 50, 1, range(7), rng)
        for level in tree.grow(pocket, deck, requests, Objective(group=1), seeded(seed)):
            assert not (level.opened & ~level.seen.open).any()
            assert torch.isfinite(level.value).all() and (level.weight >= 0).all()


def test_it_learns_whom_to_ask() -> None:
    """The dear worker is always right and the cheap one never, and their cards say the same."""
    made = table([[0.0, 1.0]] * 16, [[1, 2]] * 16, prices=[1.0, 4.0])
    pocket, deck = bare_deck(made)
    deck.skill.fill_(0.5)
    optimiser = torch.optim.Adam(pocket.pointer_parameters(), lr=0.01)
    objective = Objective(group=1, prompts=8)
    requests = dealt(deck, list(range(8)), 0.05, ONCE)
    course = [
        tree.step(pocket, optimiser, optimiser, deck, requests, objective, seeded(n))
        for n in range(40)
    ]
    assert course[0].quality < 0.6
    greedy = grpo.roll_out(pocket, deck, dealt(deck, list(range(16)), 0.05, ONCE), None)
    assert greedy.episodes.quality().mean() == 1.0
    assert course[-1].reward > course[0].reward + 0.2
