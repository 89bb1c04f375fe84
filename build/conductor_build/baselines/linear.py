"""Ridge and logistic regression of every worker at once, their strength chosen on held-out folds.

Features are centred and scaled so that their mean squared length is 1; then one grid of strengths
serves any encoder. Written out because both fit in a page and the build stage needs no more of a
statistics library than this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats, Ints

STRENGTHS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
PRECISION = 8
"""Gradient steps for each square root of the condition number: the error falls like
exp(-PRECISION). On MiniLM embeddings the loss is then within 1e-5 of its limit."""


@dataclass(frozen=True, eq=False)
class Linear:
    """weight [F, W] and bias [W] over features centred at `mean` and divided by `scale`."""

    mean: Floats
    scale: float
    weight: Floats
    bias: Floats

    def __call__(self, features: Floats) -> Floats:
        """[P, F] -> [P, W], before any link function."""
        value: Floats = (features - self.mean) / self.scale @ self.weight + self.bias
        return value


Fit = Callable[["Floats", "Floats", float], Linear]
Loss = Callable[["Floats", "Floats"], "Floats"]


def ridge(features: Floats, target: Floats, strength: float) -> Linear:
    """Least squares of `target` [P, W] with an L2 penalty on the weights."""
    mean, scale, x = _standard(features)
    bias = target.mean(axis=0)
    gram = x.T @ x / len(x) + strength * np.eye(x.shape[1])
    return Linear(mean, scale, np.linalg.solve(gram, x.T @ (target - bias) / len(x)), bias)


def logistic(features: Floats, target: Floats, strength: float) -> Linear:
    """Cross entropy of `target` [P, W] in 0..1 with an L2 penalty on the weights, none on the bias.

    Accelerated gradient descent for a smooth, strongly convex function (Nesterov, Introductory
    Lectures on Convex Optimization, 2004, scheme 2.2.11 with constant step and momentum).
    """
    mean, scale, x = _standard(features)
    steep = max(float(np.linalg.eigvalsh(x.T @ x / len(x))[-1]), 1e-12)
    constant = steep**0.5  # as steep as the steepest feature, so that the bias slows nothing
    x = np.column_stack([x, np.full(len(x), constant)])
    penalty = np.full((x.shape[1], 1), strength)
    penalty[-1] = 0.0
    smooth = steep / 4 + strength
    root = (strength / smooth) ** 0.5
    momentum = (1 - root) / (1 + root)
    weight = np.zeros((x.shape[1], target.shape[1]))
    middle = target.mean(axis=0).clip(1e-3, 1 - 1e-3)
    weight[-1] = np.log(middle / (1 - middle)) / constant
    ahead = weight.copy()
    for _ in range(math.ceil(PRECISION / root)):
        slope = x.T @ (sigmoid(x @ ahead) - target) / len(x) + penalty * ahead
        before, weight = weight, ahead - slope / smooth
        ahead = weight + momentum * (weight - before)
    return Linear(mean, scale, weight[:-1], weight[-1] * constant)


def sigmoid(value: Floats) -> Floats:
    """The logistic function, without overflow."""
    result: Floats = (1 + np.tanh(value / 2)) / 2
    return result


def squared_error(value: Floats, target: Floats) -> Floats:
    """Mean over prompts, [W]."""
    loss: Floats = ((value - target) ** 2).mean(axis=0)
    return loss


def cross_entropy(value: Floats, target: Floats) -> Floats:
    """Mean over prompts, [W]; `value` is before the logistic function."""
    loss: Floats = (np.logaddexp(0, value) - target * value).mean(axis=0)
    return loss


def best_strength(fit: Fit, loss: Loss, features: Floats, target: Floats, folds: Ints) -> float:
    """The strength of lowest loss on folds it was not fitted on; of equal ones the strongest.

    Losses are divided by each worker's spread, so that a dear worker does not decide alone.
    """
    spread = target.var(axis=0) + 1e-12
    total = []
    for strength in STRENGTHS:
        value = np.empty_like(target)
        for fold in np.unique(folds):
            out = folds == fold
            value[out] = fit(features[~out], target[~out], strength)(features[out])
        total.append(float((loss(value, target) / spread).sum()))
    return STRENGTHS[int(np.argmin(total))]


def _standard(features: Floats) -> tuple[Floats, float, Floats]:
    mean = features.mean(axis=0)
    x = features - mean
    scale = float(np.sqrt((x**2).sum(axis=1).mean())) or 1.0
    return mean, scale, x / scale
