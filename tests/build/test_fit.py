"""Fitting what is fitted before any reward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from conductor_build.cards import Cards, measure
from conductor_build.outcomes import Table, merge
from conductor_build.pocket import fit as fitting
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.fit import fit
from conductor_build.pocket.network import Pocket
from support.outcomes import generated
from support.training import FEATURES

WIDTH = 384


def prompts(table: Table, seed: int = 0) -> NDArray[np.float64]:
    """Features of which the first tells the task; the rest is noise."""
    out = np.random.default_rng(seed).normal(size=(len(table.prompts), FEATURES)) * 0.05
    tasks = sorted(set(table.tasks))
    out[:, 0] += [tasks.index(task) for task in table.tasks]
    return out


@pytest.fixture(scope="module")
def two_tables() -> tuple[Table, Cards, Pocket, Deck]:
    """Tables of different tasks; one worker, `a`, is in both."""
    one, _ = generated(120, 4, 0, ("even", "odd"))
    two, _ = generated(80, 3, 1, ("low", "high"))
    names = {"b": "x", "c": "y", "d": "z"}
    workers = tuple(
        replace(worker, name=names.get(worker.name, worker.name)) for worker in two.workers
    )
    table = merge([one, replace(two, workers=workers, prompts=tuple(f"q{i}" for i in range(80)))])
    cards = measure(table, tuple(sorted(set(table.tasks))))
    torch.manual_seed(0)
    pocket = Pocket(FEATURES, len(cards.domains), hidden=8)
    return table, cards, pocket, fit(pocket, prompts(table), table, cards, seed=0)


def test_every_prompt_is_of_domains_that_its_workers_know(
    two_tables: tuple[Table, Cards, Pocket, Deck],
) -> None:
    table, cards, _, deck = two_tables
    assert torch.allclose(deck.domain.sum(1), torch.ones(len(table.prompts)), atol=1e-5)
    mine = {"even": {"even", "odd"}, "odd": {"even", "odd"}}
    for row, task in enumerate(table.tasks):
        familiar = mine.get(task, {"low", "high"})
        strange = [place for place, name in enumerate(cards.domains) if name not in familiar]
        assert float(deck.domain[row, strange].sum()) == 0.0


def test_the_domain_head_tells_tasks_apart(two_tables: tuple[Table, Cards, Pocket, Deck]) -> None:
    table, cards, _, deck = two_tables
    guessed = [cards.domains[int(place)] for place in deck.domain.argmax(1)]
    assert np.mean([a == b for a, b in zip(guessed, table.tasks, strict=True)]) > 0.9


def test_no_prompt_is_predicted_by_a_head_that_saw_its_outcomes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Turn the outcomes of one prompt around: what its own heads say of it must stay."""
    table, _ = generated(60, 4)
    tasks = tuple(sorted(set(table.tasks)))
    cards = measure(table, tasks)
    monkeypatch.setattr(fitting, "fit_latent", lambda *_: None)
    monkeypatch.setattr(fitting, "fit_trust", lambda *_: None)

    def ease(score: NDArray[np.float32]) -> torch.Tensor:
        pocket = Pocket(FEATURES, len(tasks), hidden=8)
        return fit(pocket, prompts(table), replace(table, score=score), cards, seed=0).ease

    before, turned = ease(table.score), table.score.copy()
    turned[7] = 1 - turned[7]
    after = ease(turned)
    assert torch.allclose(before[7], after[7], atol=1e-6)
    assert not torch.allclose(before, after, atol=1e-6)


def test_the_trust_of_an_answer_is_calibrated_on_the_states_it_was_fitted_to() -> None:
    table, _ = generated(400, 4)
    cards = measure(table, tuple(sorted(set(table.tasks))))
    torch.manual_seed(0)
    pocket = Pocket(FEATURES, len(cards.domains), hidden=8)
    deck = fit(pocket, prompts(table), table, cards, seed=0)
    inputs, right = fitting._trust_data(pocket, deck, np.arange(400), np.random.default_rng(5))
    said = torch.sigmoid(inputs @ pocket.trust)
    assert float(said.mean()) == pytest.approx(float(right.mean()), abs=0.05)
