"""What the pocket conductor learns by regression, before any reward: heads, latent model, trust.

heads     which domain a prompt is of, and how easy it is                       heads.py
latent    the parameters of `latent.py`, by maximum likelihood of whole rows of outcomes
trust     calibration of the chance that the best answer at hand is right
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conductor_build.cards import Cards
from conductor_build.outcomes import Table
from conductor_build.pocket import deck as decks
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.heads import fit_heads
from conductor_build.pocket.network import Pocket

Floats = NDArray[np.float64]


def fit(pocket: Pocket, prompt: Floats, table: Table, cards: Cards, seed: int) -> Deck:
    """Fit everything but the pointers, in place, and return the deck for training them.

    `prompt` [P, F]: sentence vectors, then lexical features.
    """
    rng = np.random.default_rng(seed)
    tasks = np.array([cards.domains.index(task) for task in table.tasks])
    domain, ease = fit_heads(pocket, prompt, table, cards, tasks, rng)
    deck = decks.build(prompt, table, cards, tasks, domain, ease)
    fit_latent(pocket, deck, rng)
    fit_trust(pocket, deck, rng)
    return deck


def fit_latent(pocket: Pocket, deck: Deck, rng: np.random.Generator, steps: int = 300) -> None:
    """Maximum likelihood of which workers of a random pool are right, and of which wrong answers
    are equal."""
    latent, batch, pool = pocket.latent, 512, min(8, deck.score.shape[1])
    optimiser = torch.optim.Adam(latent.parameters(), lr=0.03)
    there = torch.isfinite(deck.score).numpy()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 0.03 * (1 - step / steps) + 1e-3
        rows = rng.integers(0, len(deck.score), batch)
        order = np.argsort(rng.random((batch, there.shape[1])) + 2.0 * ~there[rows], 1)[:, :pool]
        columns, index = torch.tensor(order), torch.tensor(rows)
        loss = -_log_likelihood(pocket, deck, index, columns).mean()
        loss = loss + 1e-3 * (latent.ease.square().mean() + latent.bend.square().mean())
        loss = loss + 1e-2 * (latent.log_spread.square().mean() + latent.offset.square().mean())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for parameter in latent.parameters():
        parameter.requires_grad_(False)


def _log_likelihood(pocket: Pocket, deck: Deck, rows: Tensor, columns: Tensor) -> Tensor:
    latent, domain = pocket.latent, deck.domain[rows]
    score = deck.score[rows[:, None], columns]
    there = torch.isfinite(score)
    score = torch.nan_to_num(score)
    skill = (deck.skill[columns] * domain[:, None]).sum(2)
    log_right, log_wrong = latent.log_chances(latent.logits(skill, deck.ease[rows], domain), domain)
    each = score[:, :, None] * log_right + (1 - score[:, :, None]) * log_wrong
    right = torch.logsumexp((each * there[:, :, None]).sum(1) + latent.log_weights, 1)
    answer = deck.answer[rows[:, None], columns]
    wrong = there & (score < 0.5) & (answer >= 0)
    same = (answer[:, :, None] == answer[:, None, :]) & wrong[:, :, None] & wrong[:, None, :]
    pool = same.shape[1]
    first = wrong & ~(same & torch.tril(torch.ones(pool, pool, dtype=torch.bool), -1)).any(2)
    tables = first * ((domain @ latent.log_variety)[:, None] + latent.log_factorial[same.sum(2)])
    seated = (
        tables.sum(1) - torch.gather(latent.rising(domain), 1, wrong.sum(1, keepdim=True))[:, 0]
    )
    return right + seated


def fit_trust(pocket: Pocket, deck: Deck, rng: np.random.Generator, states: int = 20_000) -> None:
    """Logistic regression of whether the best answer at hand is right, over random states."""
    rows = np.flatnonzero(deck.comparable.numpy())
    if not len(rows):
        return
    inputs, right = _trust_data(pocket, deck, rng.choice(rows, states), rng)
    trust = pocket.trust.detach().clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([trust], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        odds = inputs @ trust
        value = torch.nn.functional.binary_cross_entropy_with_logits(odds, right)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        pocket.trust.copy_(trust)
    pocket.trust.requires_grad_(False)


def _trust_data(
    pocket: Pocket, deck: Deck, rows: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    workers = deck.score.shape[1]
    pool = min(11, workers)
    there = torch.isfinite(deck.score).numpy()[rows]
    columns = np.argsort(rng.random((len(rows), workers)) + 2.0 * ~there, 1)[:, :pool]
    index, chosen = torch.tensor(rows), torch.tensor(columns)
    score = deck.score[index[:, None], chosen]
    wanted = rng.random((len(rows), pool)) < rng.uniform(0.1, 0.6, (len(rows), 1))
    asked = torch.tensor(wanted) & torch.isfinite(score)
    answer = deck.answer[index[:, None], chosen]
    domain = deck.domain[index]
    with torch.no_grad():
        skill = (deck.skill[chosen] * domain[:, None]).sum(2)
        logits = pocket.latent.logits(skill, deck.ease[index], domain)
        belief = pocket.latent.believe(logits, domain, asked, answer)
        inputs = pocket.trust_inputs(belief, asked, answer)
    best, place = belief.accepted.max(1)
    each = torch.arange(len(rows))
    some = best > 0
    return inputs[each, place][some], score[each, place][some].clamp(0, 1)
