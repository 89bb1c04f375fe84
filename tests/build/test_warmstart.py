"""The warm start: what the rule says in states worked out by hand, and that it is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conductor.run.exchange import Limits
from conductor_build import grpo
from conductor_build.environment import Draw, deal
from conductor_build.grpo import Objective
from conductor_build.pocket.network import Pocket
from conductor_build.pocket.state import KEEP, LAST, LOOK
from conductor_build.warmstart import imitate, teach
from support.outcomes import generated, table
from support.training import bare_deck, careless, dealt

MANY = Limits(max_rounds=4, max_calls=4)
ONCE = Limits(max_rounds=1, max_calls=4)


def rule(weight: float, limits: Limits, *before: int) -> tuple[int, int]:
    """Kind and worker that the rule chooses after the choices made before. Answers cost 1, 2 and
    3, all are right, worker number j with a card that says .5, .7, .9."""
    pocket, deck = bare_deck(table([[1.0] * 3] * 4, [[1, 1, 1]] * 4))
    deck.skill.copy_(torch.tensor([[0.5], [0.7], [0.9]]))
    episodes = grpo.Episodes(deck, dealt(deck, [0], weight, limits))
    here = torch.tensor([0])
    for choice in before:
        episodes.choose(here, torch.tensor([choice]))
    with torch.no_grad():
        kind, place = divmod(int(teach(pocket.see(episodes.state(here), *episodes.read(here)))), 3)
    return kind, place


@pytest.mark.parametrize(
    ("weight", "limits", "before", "wanted"),
    [
        (0.001, MANY, (), (LOOK, 2)),  # the best, when money hardly counts
        (0.25, MANY, (), (LOOK, 0)),  # the cheapest, when it does
        (5.0, MANY, (), (LOOK, 0)),  # even at a loss: there must be an answer
        (0.001, ONCE, (), (LAST, 2)),  # no round is left to look in
        (0.25, MANY, (3 * LOOK + 0,), (KEEP, 0)),  # no further answer is worth its price
        (0.001, MANY, (3 * LOOK + 0,), (LOOK, 2)),
        (0.001, Limits(max_rounds=2, max_calls=4), (3 * LOOK + 0,), (LAST, 2)),
        (0.001, Limits(max_rounds=4, max_calls=1), (3 * LOOK + 0,), (KEEP, 0)),  # no call is left
        (0.001, MANY, (1,), (LOOK, 2)),  # a further line is owed
    ],
)
def test_the_rule_by_hand(
    weight: float, limits: Limits, before: tuple[int, ...], wanted: tuple[int, int]
) -> None:
    assert rule(weight, limits, *before) == wanted


def agreement(pocket: Pocket, deck: grpo.Deck, seed: int) -> float:
    requests = deal(deck, Draw(pool=5), 100, 1, range(5), np.random.default_rng(seed))
    rollout = grpo.roll_out(pocket, deck, requests, None)
    same = torch.cat([teach(moment.seen) == moment.choice for moment in rollout.choices])
    return float(same.float().mean())


def test_the_rule_never_chooses_what_is_closed() -> None:
    made, _ = generated(60, workers=5)
    pocket, deck = bare_deck(made)
    careless(pocket)
    requests = deal(deck, Draw(pool=5), 300, 2, range(5), np.random.default_rng(0))
    rollout = grpo.roll_out(pocket, deck, requests, torch.Generator().manual_seed(0))
    for moment in rollout.choices:
        assert moment.seen.open.gather(1, teach(moment.seen)[:, None]).all()


def test_a_policy_learns_the_rule() -> None:
    made, _ = generated(60, workers=5)
    pocket, deck = bare_deck(made)
    optimiser = torch.optim.Adam(pocket.pointer_parameters(), lr=0.01)
    critic = torch.optim.Adam(pocket.appraise.parameters(), lr=0.003)
    objective = Objective(prompts=32, group=1)
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    before = agreement(pocket, deck, 1)
    losses = []
    for _ in range(60):
        requests = deal(deck, Draw(pool=5), 32, 1, range(5), rng)
        losses.append(imitate(pocket, optimiser, critic, deck, requests, objective, generator).loss)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert agreement(pocket, deck, 1) > max(0.85, before + 0.1)
