"""The pocket conductor's network: prompt heads, the latent model, and a pointer over worker cards.

What can be done about every worker (`state.py`) is scored by a perceptron over the worker's own
features, those of the state, and mean and maximum over the pool (Zaheer et al. 2017, Deep Sets), so
permuting workers permutes the scores and nothing else. Two features enter the score directly: what
asking and looking, or asking and taking the answer, gains one step ahead by the latent model, less
its price. The perceptron learns what that rule of thumb misses.

Shapes: B states, K workers, D domains, F prompt features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from conductor_build.pocket.latent import EASE, Belief, Latent
from conductor_build.pocket.state import KEEP, LAST, LOOK, MORE, State, familiar, grammar

WORKER_FEATURES = (
    "prior", "right", "accepted", "asked", "silent", "gain", "gain_net", "price", "log_price",
    "likeliest", "support", "right_over_best", "pending", "right_net",
)  # fmt: skip
"""What the pointers see of a worker, in this order. `gain_net` and `right_net` are what asking and
looking, or asking and taking the answer, is worth one step ahead, less its price."""
STATE_FEATURES = (
    "best", "log_lambda", "asked", "hidden_ease", "best_odds", "rounds_left", "calls_left",
    "pending", "certainty", *(f"ease_{place}" for place in range(EASE)),
)  # fmt: skip
"""What they see of the state."""
_GAIN_NET, _RIGHT_NET = map(WORKER_FEATURES.index, ("gain_net", "right_net"))
_CLOSED = -1e9


class Seen(NamedTuple):
    """What the network makes of a state, but for the scores."""

    belief: Belief
    best: Tensor
    """[B]: chance that the best answer at hand is right."""
    price: Tensor
    """[B, K]: lambda times the expected cost."""
    worker: Tensor
    """[B, K, len(WORKER_FEATURES)]"""
    state: Tensor
    """[B, len(STATE_FEATURES)]"""
    open: Tensor
    """[B, 4K] bool: which choices the grammar allows."""


class Pointer(nn.Module):
    """Scores every choice from the features of workers and state."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.into = nn.Linear(len(WORKER_FEATURES) + len(STATE_FEATURES), hidden)
        self.mix = nn.Linear(3 * hidden, hidden)
        self.out = nn.Linear(hidden, 4)
        self.sharpness = nn.Parameter(torch.tensor(20.0))
        with torch.no_grad():
            self.out.weight.mul_(0.1)
            self.out.bias.copy_(torch.tensor([0.0, 0.5, 0.0, 0.0]))

    def forward(self, seen: Seen, present: Tensor) -> Tensor:
        """Scores of all choices, [B, 4K]; those that are closed lie far below."""
        # A layer over [own, shared] inputs is the sum of a layer over each, and of the shared ones,
        # those of the state and of the pool, there is one a state and not one a worker.
        own, hidden = len(WORKER_FEATURES), self.out.in_features
        spread = seen.state @ self.into.weight[:, own:].T + self.into.bias
        each = torch.relu(seen.worker @ self.into.weight[:, :own].T + spread[:, None])
        there = present[:, :, None].to(each.dtype)
        mean = (each * there).sum(1) / there.sum(1).clamp(min=1)
        most = (each * there).amax(1)  # after relu nothing is below zero
        pool = torch.cat([mean, most], 1) @ self.mix.weight[:, hidden:].T + self.mix.bias
        mixed = torch.relu(each @ self.mix.weight[:, :hidden].T + pool[:, None])
        scores = 3.0 * self.out(mixed)
        look = self.sharpness * seen.worker[:, :, _GAIN_NET]
        last = self.sharpness * seen.worker[:, :, _RIGHT_NET]
        scores = torch.stack(
            [scores[:, :, MORE] + look, scores[:, :, LOOK] + look,
             scores[:, :, LAST] + last, scores[:, :, KEEP]], 1
        ).flatten(1)  # fmt: skip
        return scores.masked_fill(~seen.open, _CLOSED)


class Pocket(nn.Module):
    """Everything between a prompt's features and the scores of the next choice."""

    centre: Tensor
    scale: Tensor

    def __init__(self, features: int, domains: int, hidden: int = 64, pointers: int = 1) -> None:
        super().__init__()
        self.member: int | None = None
        """Which pointer decides, while it is trained; None: the mean of all their opinions."""
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.domain = nn.Linear(features, domains)
        self.ease = nn.Linear(features, domains * EASE)
        self.latent = Latent(domains)
        self.trust = nn.Parameter(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        """Calibration of the best answer's log odds: slope, offset, and two of who supports it."""
        self.appraise = nn.Linear(len(WORKER_FEATURES) + len(STATE_FEATURES) + domains + 1, 2)
        """Correction of the chance that an answer is right, for one kept and one taken unseen."""
        self.pointers = nn.ModuleList(Pointer(hidden) for _ in range(pointers))
        with torch.no_grad():
            self.appraise.weight.zero_()
            self.appraise.bias.zero_()

    def pointer_parameters(self) -> list[nn.Parameter]:
        """The parameters that reinforcement learning trains; the rest is fitted before."""
        return list(self.pointers.parameters())

    def read(self, prompt: Tensor) -> tuple[Tensor, Tensor]:
        """Domain probabilities [B, D] and predicted ease [B, EASE] of prompts [B, F]."""
        features = (prompt - self.centre) * self.scale
        domain = torch.softmax(self.domain(features), 1)
        ease = self.ease(features).view(prompt.shape[0], -1, EASE)  # shape: for export
        return domain, (domain[:, :, None] * ease).sum(1)

    def see(self, state: State, domain: Tensor, ease: Tensor) -> Seen:
        """Features and grammar of states whose prompts were `read`."""
        domain = familiar(domain, state)
        skill = (state.skill * domain[:, None]).sum(2)
        logits = self.latent.logits(skill, ease, domain)
        belief = self.latent.believe(logits, domain, state.asked, state.answer)
        belief = self._calibrated(belief, state)
        best = belief.accepted.amax(1)
        longer = torch.exp(ease[:, -1:].clamp(-1.0, 1.0))
        price = state.weight[:, None] * (state.cost * domain[:, None]).sum(2) * longer
        return Seen(
            belief,
            best,
            price,
            _worker_features(state, belief, best, price, skill),
            _state_features(state, belief, best, domain, ease),
            grammar(state, belief),
        )

    def score(self, seen: Seen, present: Tensor) -> Tensor:
        """Scores of all choices, [B, 4K]: MORE for every worker, then LOOK, LAST, KEEP.

        Several pointers were trained apart, on episodes of their own; the mean of their
        log-probabilities errs less than each of them.
        """
        if self.member is not None:
            own: Tensor = self.pointers[self.member](seen, present)
            return own
        opinions = [torch.log_softmax(pointer(seen, present), 1) for pointer in self.pointers]
        scores = torch.stack(opinions).mean(0)
        return scores.masked_fill(~seen.open, _CLOSED)

    def expected(self, seen: Seen, domain: Tensor, choice: Tensor) -> Tensor:
        """Log odds that the answer which a choice [B] ends with is right, [B]; `seen` and `domain`
        as for `score`. It means nothing for a choice that ends no request.

        Learned from the records of what the policy really chose: the latent model is right on
        average, but a policy seeks out the states in which it is too sure.
        """
        places = seen.price.shape[1]
        kind, place = choice // places, choice % places
        each = torch.arange(len(choice))
        chance = torch.where(
            kind == KEEP, seen.belief.accepted[each, place], seen.belief.right[each, place]
        )
        odds = torch.logit(chance.clamp(0.01, 0.99))
        inputs = torch.cat([seen.worker[each, place], seen.state, domain, odds[:, None]], 1)
        corrections: Tensor = self.appraise(inputs)
        return odds + corrections[each, (kind == KEEP).to(torch.int64)]

    def forward(self, state: State) -> tuple[Tensor, Seen]:
        """Scores [B, 4K] and what they were made from."""
        domain, ease = self.read(state.prompt)
        seen = self.see(state, domain, ease)
        return self.score(seen, state.present), seen

    def trust_inputs(self, belief: Belief, asked: Tensor, answer: Tensor) -> Tensor:
        """What calibration of an answer looks at, [B, K, 4]: the latent model's log odds, one, and
        the prior log odds of the strongest worker for it and of the strongest against it."""
        given = belief.accepted > 0
        prior = torch.where(asked, belief.prior, torch.zeros_like(belief.prior))
        same = (answer[:, :, None] == answer[:, None, :]) & given[:, None, :]
        own = (same * prior[:, None, :]).amax(2)
        against = ((~same & asked[:, None, :]) * prior[:, None, :]).amax(2)
        odds = torch.logit(belief.accepted.clamp(0.003, 0.997))
        own, against = (torch.logit(one.clamp(0.02, 0.98)) for one in (own, against))
        return torch.stack([odds, torch.ones_like(odds), own, against], 2)

    def _calibrated(self, belief: Belief, state: State) -> Belief:
        """The same belief with the chances of answers given corrected: the latent model takes
        workers for more independent than they are."""
        odds = self.trust_inputs(belief, state.asked, state.answer) @ self.trust
        given = belief.accepted > 0
        accepted = torch.where(given, torch.sigmoid(odds), torch.zeros_like(odds))
        return belief._replace(accepted=accepted)


def _worker_features(
    state: State, belief: Belief, best: Tensor, price: Tensor, skill: Tensor
) -> Tensor:
    asked = state.asked.to(skill.dtype)
    silent = asked * (state.answer < 0)
    net = (belief.gain - price).clamp(-0.5, 1.0)
    return torch.stack(
        [
            belief.prior,
            belief.right,
            belief.accepted,
            asked,
            silent,
            belief.gain,
            net,
            price.clamp(max=1.0),
            torch.log(price.clamp(1e-5, 10.0)) / 4,
            (belief.accepted >= best[:, None] - 1e-6) * asked,
            belief.support / 5,
            belief.right - best[:, None],
            state.pending.to(skill.dtype),
            (belief.right - best[:, None] - price).clamp(-0.5, 1.0),
        ],
        2,
    )


def _state_features(
    state: State, belief: Belief, best: Tensor, domain: Tensor, ease: Tensor
) -> Tensor:
    kind = best.dtype
    certain = (domain * torch.log(domain.clamp(min=1e-6))).sum(1)
    own = torch.stack(
        [
            best,
            torch.log(state.weight.clamp(min=1e-4)) / 3,
            state.asked.sum(1).to(kind) / 5,
            belief.ease,
            torch.logit(best.clamp(0.01, 0.995)) / 4,
            state.rounds_left.to(kind).clamp(max=4) / 4,
            state.calls_left.to(kind).clamp(max=8) / 8,
            state.pending.sum(1).to(kind) / 3,
            certain,
        ],
        1,
    )
    return torch.cat([own, ease], 1)
