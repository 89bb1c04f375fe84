"""Linear heads on a prompt's features: which domain it is of, and how easy it is.

    domain    multinomial logistic regression
    ease      how much easier than its domain a prompt is for all, the weak, the strong and the top
              workers, and how much longer its answers are: ridge regression of the outcomes'
              residuals, a domain at a time

Both are fitted on all prompts; what is returned for these is cross-fitted. What a head says of a
prompt whose outcomes it was fitted to is surer than what it will say of a new one, and a policy
trained on that would trust it too much.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conductor.planner.encoder import WIDTH
from conductor_build.cards import Cards
from conductor_build.outcomes import Table
from conductor_build.pocket.latent import EASE
from conductor_build.pocket.network import Pocket

DOMAIN_FITS = 5
EASE_FITS = 10
"""Parts of the cross-fitting."""
RIDGE = 3.0
"""Of 1, 3, 6 and 10 it predicted held-out outcomes best, or as well as any."""
DOMAIN_DECAY = 3e-4
LEXICAL_SCALE = 0.1
"""Standardised lexical features against a sentence vector, whose entries are about 0.05."""

Floats = NDArray[np.float64]


def fit_heads(
    pocket: Pocket,
    prompt: Floats,
    table: Table,
    cards: Cards,
    tasks: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Fit both heads in place. Returns cross-fitted domain probabilities [P, D], over the domains
    that most of a prompt's workers were measured in, and ease [P, EASE]."""
    centre, scale = _standard(prompt)
    pocket.centre.copy_(torch.tensor(centre))
    pocket.scale.copy_(torch.tensor(scale))
    features = (prompt - centre) * scale
    domain = _domain_heads(pocket, features, tasks, len(cards.domains), rng)
    ease = _ease_heads(pocket, features, table, cards, tasks, domain, rng)
    there = np.isfinite(table.score).astype(np.float64)
    familiar = there @ (cards.counts > 0) > 0.5 * there.sum(1, keepdims=True)  # [P, D]
    domain = domain * familiar
    return domain / np.maximum(domain.sum(1, keepdims=True), 1e-9), ease


def _standard(prompt: Floats) -> tuple[Floats, Floats]:
    centre, scale = prompt.mean(0), np.ones(prompt.shape[1])
    lexical = slice(WIDTH, None)
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
    fold = _folds(tasks, DOMAIN_FITS, rng)
    for held in range(DOMAIN_FITS):
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
        fold = rng.permutation(len(rows)) % EASE_FITS
        for held in range(EASE_FITS):
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
