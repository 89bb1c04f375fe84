"""What answers say about each other, against sums written out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from conductor_build.pocket.latent import EASE, GRID, Belief, Latent


@pytest.fixture(scope="module")
def latent() -> Latent:
    made = Latent(2)
    with torch.no_grad():
        made.log_spread.copy_(torch.tensor([-0.5, 0.3]))
        made.log_variety.copy_(torch.tensor([1.0, 0.2]))
    return made


def believe(
    latent: Latent, chances: list[float], asked: list[int], answer: list[int], domain: int = 0
) -> Belief:
    with torch.no_grad():
        where = torch.eye(2)[domain : domain + 1]
        logits = torch.logit(torch.tensor([chances]))
        flags = torch.tensor([[place in asked for place in range(len(chances))]])
        return latent.believe(logits, where, flags, torch.tensor([answer]))


def by_hand(
    latent: Latent, chances: list[float], asked: list[int], answer: list[int], domain: int
) -> dict[int, float]:
    """Chance that each answer given is right, one sum over the grid at a time."""
    spread = math.exp(float(latent.log_spread.detach()[domain]))
    variety = math.exp(float(latent.log_variety.detach()[domain]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(GRID)
    given = sorted({answer[k] for k in asked if answer[k] >= 0})

    def seated(sizes: list[int]) -> float:
        total, value = 0, 1.0
        for size in sizes:
            for place in range(size):
                value *= (variety if place == 0 else place) / (variety + total)
                total += 1
        return value

    joint: dict[int | None, float] = {}
    for truth in [*given, None]:
        sizes = [sum(answer[k] == one for k in asked) for one in given if one != truth]
        likelihood = 0.0
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            product = 1.0
            for k in asked:
                odds = math.log(chances[k] / (1 - chances[k])) + spread * node
                right = 1 / (1 + math.exp(-odds))
                said_it = truth is not None and answer[k] == truth
                product *= right if said_it else 1 - right
            likelihood += weight * product
        joint[truth] = likelihood * seated(sizes)
    whole = sum(joint.values())
    return {k: joint[answer[k]] / whole for k in asked if answer[k] >= 0}


@pytest.mark.parametrize("domain", [0, 1])
@pytest.mark.parametrize(
    "answer", [[0, 0, 1, 2], [0, 1, 2, 3], [0, 0, 0, 1], [3, -1, 3, 5], [-1, -1, -1, 0]]
)
def test_belief_is_the_sum_over_all_hypotheses(
    latent: Latent, answer: list[int], domain: int
) -> None:
    chances, asked = [0.9, 0.6, 0.5, 0.3], [0, 1, 2, 3]
    belief = believe(latent, chances, asked, answer, domain)
    expected = by_hand(latent, chances, asked, answer, domain)
    for place in asked:
        assert float(belief.accepted[0, place]) == pytest.approx(expected.get(place, 0.0), abs=1e-5)


def test_what_asking_would_add_is_the_mean_over_what_could_be_said(latent: Latent) -> None:
    """Worker 2 is asked next: it says what 0 said, what 1 said, or something new."""
    chances = [0.7, 0.6, 0.8]
    before = believe(latent, chances, [0, 1], [0, 1, -1])
    best = float(before.accepted.max())
    after = {said: believe(latent, chances, [0, 1, 2], [0, 1, said]) for said in (0, 1, 2)}
    chance = {said: _chance_of(latent, chances, said) for said in after}
    assert sum(chance.values()) == pytest.approx(1.0, abs=1e-5)
    expected = sum(chance[said] * float(after[said].accepted.max()) for said in after)
    assert float(before.gain[0, 2]) == pytest.approx(expected - best, abs=1e-5)


def _chance_of(latent: Latent, chances: list[float], said: int) -> float:
    """Predictive chance of what worker 2 says after 0 said 0 and 1 said 1, written out."""
    spread, variety = (
        math.exp(float(latent.log_spread.detach()[0])),
        math.exp(float(latent.log_variety.detach()[0])),
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(GRID)
    total, part = 0.0, 0.0
    for (node, weight), truth in itertools.product(
        zip(nodes, weights / weights.sum(), strict=True), (0, 1, None)
    ):
        right = [1 / (1 + math.exp(-(math.log(c / (1 - c)) + spread * node))) for c in chances]
        first = right[0] if truth == 0 else 1 - right[0]
        second = right[1] if truth == 1 else 1 - right[1]
        wrong = (truth != 0) + (truth != 1)
        seats = 1.0 if wrong < 2 else variety / (variety + 1)
        weighted = weight * first * second * seats
        total += weighted
        if truth is None:  # then a right answer would be a new one
            fresh = right[2] + (1 - right[2]) * variety / (variety + wrong)
            joins = (1 - right[2]) / (variety + wrong)
        else:
            fresh = (1 - right[2]) * variety / (variety + wrong)
            joins = (1 - right[2]) / (variety + wrong)
        if said == 2:
            part += weighted * fresh
        else:
            part += weighted * (right[2] if truth == said else joins)
    return part / total


def test_a_lone_answer_is_as_likely_right_as_its_worker(latent: Latent) -> None:
    belief = believe(latent, [0.8, 0.5], [0], [4, -1])
    assert float(belief.accepted[0, 0]) == pytest.approx(float(belief.prior[0, 0]), abs=1e-5)
    assert float(belief.accepted[0, 1]) == 0.0


def test_agreement_helps_and_disagreement_hurts(latent: Latent) -> None:
    alone, agreed, denied = (
        float(believe(latent, [0.7, 0.7], asked, answer).accepted[0, 0])
        for asked, answer in (([0], [0, -1]), ([0, 1], [0, 0]), ([0, 1], [0, 1]))
    )
    assert denied < alone < agreed


def test_padding_and_order_change_nothing(latent: Latent) -> None:
    belief = believe(latent, [0.9, 0.6, 0.5], [0, 1, 2], [0, 1, 0])
    turned = believe(latent, [0.5, 0.5, 0.9, 0.6], [0, 2, 3], [7, -1, 7, 2])
    assert torch.allclose(belief.accepted[0, [2, 0, 1]], turned.accepted[0, [0, 2, 3]], atol=1e-6)


def test_predicted_ease_moves_everybody_alike(latent: Latent) -> None:
    easy, hard = torch.zeros(1, EASE), torch.zeros(1, EASE)
    easy[0, 0], hard[0, 0] = 0.1, -0.1
    skill, domain = torch.tensor([[0.4, 0.8]]), torch.eye(2)[:1]
    with torch.no_grad():
        up, down = (latent.logits(skill, ease, domain) for ease in (easy, hard))
    assert (up > down).all()
