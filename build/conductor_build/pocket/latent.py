"""What answers say about each other: a small probabilistic model of workers on one prompt.

Every prompt has a hidden ease, normal around nothing, that moves all workers alike (item response
theory, Rasch 1960, with the ease integrated out on a fixed grid). Given it, workers are right
independently: the right ones give the same answer, the wrong ones share answers as a Chinese
restaurant process would seat them (Aldous 1985; few collisions where answers are open). From that
follow, in closed form, the chance that an answer given is right, the chance that a worker who was
not asked would be, and what asking one of them would add to the best answer at hand.

Its few parameters, a handful a domain, are fitted by maximum likelihood (`fit.py`). A prompt's
domain is not known but guessed, so parameters are mixed by the domain's probability.

Shapes: B states, K workers, D domains, E features of ease, Q grid points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

EASE = 5
"""Predicted residuals of a prompt: all workers, the weak, the strong, the top ones; length."""
GRID = 9
MAX_ANSWERS = 16
"""Most answers that can be compared: more than a request can ever have."""
_NEVER = -1e9


class Belief(NamedTuple):
    """What is believed in a state. Tensors [B, K], but `ease` [B]."""

    prior: Tensor
    """Chance of a right answer before anything was heard."""
    right: Tensor
    """The same after what was heard; for a worker not asked."""
    accepted: Tensor
    """Chance that the answer which the worker gave is right; 0 where there is none."""
    gain: Tensor
    """What asking the worker adds to the best answer's chance, one step ahead."""
    support: Tensor
    """How many answers agree with the worker's own, itself included."""
    ease: Tensor
    """Expected hidden ease, in grid units."""


class Latent(nn.Module):
    """The model's parameters, and inference."""

    nodes: Tensor
    log_weights: Tensor
    log_factorial: Tensor
    counts: Tensor

    def __init__(self, domains: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(domains))
        self.offset = nn.Parameter(torch.zeros(domains))
        self.ease = nn.Parameter(torch.zeros(domains, EASE))
        self.bend = nn.Parameter(torch.zeros(domains, EASE))
        self.log_spread = nn.Parameter(torch.zeros(domains))
        self.log_variety = nn.Parameter(torch.ones(domains))
        """Log of the process's concentration: the larger, the rarer equal wrong answers are."""
        with torch.no_grad():
            self.ease[:, 0] = 3.0
        nodes, weights = np.polynomial.hermite_e.hermegauss(GRID)
        self.register_buffer("nodes", torch.tensor(nodes, dtype=torch.float32))
        log_weights = np.log(weights / weights.sum())
        self.register_buffer("log_weights", torch.tensor(log_weights, dtype=torch.float32))
        counts = torch.arange(MAX_ANSWERS + 1, dtype=torch.float32)
        self.register_buffer("log_factorial", torch.lgamma(counts.clamp(min=1)))  # of (n - 1)!
        self.register_buffer("counts", counts)

    def logits(self, skill: Tensor, ease: Tensor, domain: Tensor) -> Tensor:
        """Log odds of a right answer at average hidden ease, [B, K].

        skill [B, K]: chance by the card; ease [B, EASE]: predicted; domain [B, D]: probabilities.
        """
        odds = torch.logit(skill.clamp(0.02, 0.985))
        shift = ((domain @ self.ease) * ease).sum(1) + domain @ self.offset
        bend = ((domain @ self.bend) * ease).sum(1)
        return (domain @ self.slope + bend)[:, None] * odds + shift[:, None]

    def log_chances(self, logits: Tensor, domain: Tensor) -> tuple[Tensor, Tensor]:
        """Log chances of right and wrong on the grid, each [B, K, Q]."""
        spread = torch.exp(domain @ self.log_spread)[:, None, None]
        at = logits[:, :, None] + spread * self.nodes
        return nn.functional.logsigmoid(at), nn.functional.logsigmoid(-at)

    def rising(self, domain: Tensor) -> Tensor:
        """Log of the process's normaliser for 0 to MAX_ANSWERS wrong answers, [B, that + 1]."""
        variety = torch.exp(domain @ self.log_variety)[:, None]
        steps = torch.log(variety + self.counts[:-1])
        return torch.cat([torch.zeros_like(variety), torch.cumsum(steps, 1)], 1)

    def believe(self, logits: Tensor, domain: Tensor, asked: Tensor, answer: Tensor) -> Belief:
        """Belief in each state.

        logits [B, K] as from `logits`; asked [B, K] bool: whose answer was seen; answer [B, K]
        int64, equal where two agree, negative where there is nothing to compare.
        """
        log_right, log_wrong = self.log_chances(logits, domain)
        given = asked & (answer >= 0)
        same = (answer[:, :, None] == answer[:, None, :]) & given[:, :, None] & given[:, None, :]
        size = same.sum(2)
        workers = same.shape[1]
        below = torch.tril(torch.ones(workers, workers, dtype=torch.bool), -1)
        first = given & ~(same & below).any(2)
        evidence = self._evidence(log_right, log_wrong, domain, asked, same, first, size)
        joint = evidence / evidence.sum((1, 2), keepdim=True).clamp(min=1e-30)
        hypotheses = joint.sum(2)
        accepted = (same * (hypotheses[:, :-1] * first)[:, None, :]).sum(2)
        at_ease = joint.sum(1)
        chances = torch.exp(log_right)
        return Belief(
            prior=(chances * torch.exp(self.log_weights)).sum(2),
            right=(chances * at_ease[:, None]).sum(2),
            accepted=accepted,
            gain=self._expected(joint, chances, domain, first, size, given)
            - accepted.max(1).values[:, None],
            support=size.to(logits.dtype),
            ease=(at_ease * self.nodes).sum(1),
        )

    def _evidence(
        self,
        log_right: Tensor,
        log_wrong: Tensor,
        domain: Tensor,
        asked: Tensor,
        same: Tensor,
        first: Tensor,
        size: Tensor,
    ) -> Tensor:
        """Likelihood of what was heard, [B, K + 1, Q], up to a factor a row: if the answer that
        worker k was the first to give is the right one; at K, if none is."""
        none_right = (asked[:, :, None] * log_wrong).sum(1)
        own_right = torch.bmm(same.to(log_right.dtype), log_right - log_wrong)
        log_variety = (domain @ self.log_variety)[:, None]
        table = first * (log_variety + self.log_factorial[size])
        own_table = (same * table[:, None, :]).sum(2)
        total = first.to(size.dtype).mul(size).sum(1, keepdim=True)
        rising = self.rising(domain)
        tables = table.sum(1, keepdim=True)
        if_own = tables - own_table - torch.gather(rising, 1, total - size * first)
        if_none = tables - torch.gather(rising, 1, total)
        log = torch.cat(
            [
                none_right[:, None] + own_right + if_own[:, :, None],
                (none_right + if_none)[:, None],
            ],
            1,
        )
        open_ = torch.cat([first, torch.ones_like(first[:, :1])], 1)[:, :, None]
        log = torch.where(open_, log + self.log_weights, torch.full_like(log, _NEVER))
        return torch.exp(log - log.amax((1, 2), keepdim=True))

    def _expected(
        self,
        joint: Tensor,
        chances: Tensor,
        domain: Tensor,
        first: Tensor,
        size: Tensor,
        given: Tensor,
    ) -> Tensor:
        """Expected chance of the best answer after asking each worker, [B, K]: over all that it
        could say, an answer already heard or a new one."""
        variety = torch.exp(domain @ self.log_variety)[:, None]
        right = torch.bmm(joint, chances.transpose(1, 2))  # [B, H, K]: h holds, the worker is right
        wrong = joint.sum(2)[:, :, None] - right
        total = given.sum(1, keepdim=True).to(joint.dtype)
        count = (size * first).to(joint.dtype)
        others = torch.cat([total - count, total], 1)  # wrong answers under each hypothesis
        share = count[:, None, :] / (others[:, :-1, None] + variety[:, :, None])
        workers = first.shape[1]
        apart = 1.0 - torch.eye(workers)
        joins_wrong = (wrong[:, :-1, None, :] * (share * apart)[:, :, :, None]).amax(1)
        joins = torch.maximum(right[:, :-1], joins_wrong) * first[:, :, None]
        fresh = variety / (others[:, :-1] + variety)
        stays = (wrong[:, :-1] * (fresh * first)[:, :, None]).amax(1)
        return joins.sum(1) + torch.maximum(right[:, -1], stays)
