"""What the pocket conductor learns by regression, before any reward: heads, latent model, trust.

    heads     which domain a prompt is of (multinomial logistic), and how much easier than its
              domain it is for all, the weak, the strong and the top workers, and how much longer
              its answers are (ridge regression of the outcomes' residuals, a domain at a time)
    latent    the parameters of `latent.py`, by maximum likelihood of whole rows of outcomes
    trust     calibration of the chance that the best answer at hand is right

Training prompts get cross-fitted predictions: what a head says of a prompt whose outcomes it was
fitted to is surer than what it will say of a new one, and a policy trained on that trusts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conductor_build.cards import Cards
from conductor_build.outcomes import Table
from conductor_build.pocket.latent import EASE
from conductor_build.pocket.network import Pocket

CROSS_FITS = 10
RIDGE = 3.0
DOMAIN_DECAY = 3e-4
LEXICAL_SCALE = 0.1
"""Standardised lexical features against a sentence vector, whose entries are about 0.05."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Deck:
    """Prompts ready to be played. P prompts, W workers, D domains."""

    prompt: Tensor
    """[P, F] raw prompt features."""
    domain: Tensor
    """[P, D] cross-fitted domain probabilities."""
    ease: Tensor
    """[P, EASE] cross-fitted."""
    score: Tensor
    """[P, W], NaN where no outcome is recorded."""
    answer: Tensor
    """[P, W] int64."""
    tokens: Tensor
    """[P, W], 1000 where a call has one price."""
    skill: Tensor
    """[W, D]"""
    cost: Tensor
    """[W, D] expected, USD per 1,000."""
    price: Tensor
    """[W], see `Cards`."""
    known: Tensor
    """[W, D] bool: domains that the worker's card was measured in."""
    comparable: Tensor
    """[P] bool: whether answers of the prompt can be compared at all."""


def fit(pocket: Pocket, prompt: Floats, table: Table, cards: Cards, seed: int) -> Deck:
    """Fit everything but the pointer, in place, and return the deck for training it.

    `prompt` [P, F]: sentence vectors, then lexical features.
    """
    rng = np.random.default_rng(seed)
    tasks = np.array([cards.domains.index(task) for task in table.tasks])
    centre, scale = _standard(prompt)
    pocket.centre.copy_(torch.tensor(centre))
    pocket.scale.copy_(torch.tensor(scale))
    features = (prompt - centre) * scale
    domain = _domain_heads(pocket, features, tasks, len(cards.domains), rng)
    ease = _ease_heads(pocket, features, table, cards, tasks, domain, rng)
    there = np.isfinite(table.score).astype(np.float64)
    familiar = there @ (cards.counts > 0) > 0.5 * there.sum(1, keepdims=True)  # [P, D]
    domain = domain * familiar
    domain = domain / np.maximum(domain.sum(1, keepdims=True), 1e-9)
    deck = _deck(prompt, table, cards, tasks, domain, ease)
    fit_latent(pocket, deck, rng)
    fit_trust(pocket, deck, rng)
    return deck


def _standard(prompt: Floats) -> tuple[Floats, Floats]:
    centre, scale = prompt.mean(0), np.ones(prompt.shape[1])
    lexical = slice(384, None)
    scale[lexical] = LEXICAL_SCALE / np.maximum(prompt[:, lexical].std(0), 0.02)
    return centre, scale


def _folds(tasks: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    fold = np.zeros(len(tasks), np.int64)
    for task in np.unique(tasks):
        rows = rng.permutation(np.flatnonzero(tasks == task))
        fold[rows] = np.arange(len(rows)) % count
    return fold


def _domain_heads(
    pocket: Pocket,
    features: Floats,
    tasks: NDArray[np.int64],
    domains: int,
    rng: np.random.Generator,
) -> Floats:
    """Fit the head on all prompts; return cross-fitted probabilities."""
    x, y = torch.tensor(features, dtype=torch.float32), torch.tensor(tasks)
    out = np.zeros((len(tasks), domains))
    fold = _folds(tasks, 5, rng)
    for held in range(5):
        there = torch.tensor(fold != held)
        weight, bias = _logistic(x[there], y[there], domains)
        out[fold == held] = torch.softmax(x[~there] @ weight.T + bias, 1).numpy()
    weight, bias = _logistic(x, y, domains)
    with torch.no_grad():
        pocket.domain.weight.copy_(weight)
        pocket.domain.bias.copy_(bias)
    return out


def _logistic(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    weight = torch.zeros(classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=80, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weight.T + bias, y)
        value = value + DOMAIN_DECAY * weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()


def residuals(table: Table, cards: Cards, tasks: NDArray[np.int64]) -> Floats:
    """How much easier each prompt was than its domain, [P, EASE]; 0 where nothing tells."""
    skill, tokens = cards.skill.T[tasks], cards.tokens.T[tasks]  # [P, W]
    above = table.score - skill
    there = np.isfinite(table.score)
    level = np.where(cards.counts.sum(1) > 0, cards.skill.mean(1), np.nan)
    out = np.zeros((len(tasks), EASE))
    for task in np.unique(tasks):
        rows = np.flatnonzero(tasks == task)
        known = np.flatnonzero(there[rows].mean(0) > 0.5)
        order = known[np.argsort(level[known], kind="stable")]
        half = max(1, len(order) // 2)
        top = max(1, min(8, len(order) // 3))
        groups = (order, order[:half], order[-half:], order[-top:])
        for place, group in enumerate(groups):
            out[rows, place] = _mean(above[np.ix_(rows, group)].astype(np.float64))
        length = np.log(
            np.maximum(table.tokens[np.ix_(rows, order)], 1) / tokens[np.ix_(rows, order)]
        )
        out[rows, EASE - 1] = _mean(length)
    return out


def _mean(values: Floats) -> Floats:
    there = np.isfinite(values)
    count = np.maximum(there.sum(1), 1)
    return np.asarray(np.where(there, values, 0.0).sum(1) / count)


def _ease_heads(
    pocket: Pocket,
    features: Floats,
    table: Table,
    cards: Cards,
    tasks: NDArray[np.int64],
    domain: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Fit the heads on all prompts; return predictions cross-fitted within each domain."""
    target = residuals(table, cards, tasks)
    own = np.zeros((len(tasks), EASE))
    weights = np.zeros((len(cards.domains), EASE, features.shape[1]))
    biases = np.zeros((len(cards.domains), EASE))
    for task in np.unique(tasks):
        rows = np.flatnonzero(tasks == task)
        fold = rng.permutation(len(rows)) % CROSS_FITS
        for held in range(CROSS_FITS):
            there = rows[fold != held]
            weight, bias = _ridge(features[there], target[there])
            own[rows[fold == held]] = features[rows[fold == held]] @ weight.T + bias
        weights[task], biases[task] = _ridge(features[rows], target[rows])
    with torch.no_grad():
        pocket.ease.weight.copy_(torch.tensor(weights.reshape(-1, features.shape[1])))
        pocket.ease.bias.copy_(torch.tensor(biases.reshape(-1)))
    every = np.einsum("def,pf->pde", weights, features) + biases
    every[np.arange(len(tasks)), tasks] = own
    return np.asarray((domain[:, :, None] * every).sum(1))


def _ridge(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    centre, level = x.mean(0), y.mean(0)
    moved = x - centre
    weight = np.linalg.solve(moved.T @ moved + RIDGE * np.eye(x.shape[1]), moved.T @ (y - level)).T
    return weight, level - weight @ centre


def _deck(
    prompt: Floats,
    table: Table,
    cards: Cards,
    tasks: NDArray[np.int64],
    domain: Floats,
    ease: Floats,
) -> Deck:
    def floats(values: NDArray[np.float64] | NDArray[np.float32]) -> Tensor:
        return torch.tensor(np.asarray(values), dtype=torch.float32)

    recorded: NDArray[np.bool_] = np.asarray(np.isfinite(table.tokens).any(0), np.bool_)
    tokens = np.where(recorded, np.nan_to_num(table.tokens, nan=0.0), 1000.0)
    answered: NDArray[np.bool_] = np.asarray((table.answer >= 0).any(1), np.bool_)
    comparable = np.array([answered[tasks == task].mean() > 0.5 for task in tasks])
    return Deck(
        prompt=floats(prompt),
        domain=floats(domain),
        ease=floats(ease),
        score=floats(table.score),
        answer=torch.tensor(table.answer.astype(np.int64)),
        tokens=floats(tokens),
        skill=floats(cards.skill),
        cost=floats(np.nan_to_num(cards.cost)),
        price=floats(np.nan_to_num(cards.price)),
        known=torch.tensor(cards.counts > 0),
        comparable=torch.tensor(comparable),
    )


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
