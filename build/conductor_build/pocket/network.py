"""The pocket conductor's network: prompt heads, the latent model, and a pointer over worker cards.

Four things can be done about every worker, and a decode step chooses one of 4K:

    MORE    ask it, and write a further line of this round's plan
    LOOK    ask it, end the plan, and look at the answers before anything is accepted
    LAST    ask it, and take what it answers: only when no round is left
    KEEP    end with the answer it gave in an earlier round

The choice is scored by a perceptron over the worker's own features, those of the state, and mean
and maximum over the pool (Zaheer et al. 2017, Deep Sets), so permuting workers permutes the scores
and nothing else. Two features enter the score directly: what asking and looking, or asking and
taking the answer, gains one step ahead by the latent model, less its price. The perceptron learns
what that rule of thumb misses.

Shapes: B states, K workers, D domains, F prompt features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from conductor_build.pocket.latent import EASE, Belief, Latent

MORE, LOOK, LAST, KEEP = range(4)
WORKER_FEATURES = 14
STATE_FEATURES = 9 + EASE
_CLOSED = -1e9


class State(NamedTuple):
    """Where requests stand, in the middle of being planned. [B, ...], bool unless said."""

    prompt: Tensor
    """[B, F] float: sentence vector and lexical features."""
    skill: Tensor
    """[B, K, D] float: cards; 0 in a domain for the whole pool: nothing is known of it."""
    cost: Tensor
    """[B, K, D] float: expected cost of an answer, USD per 1,000, by domain."""
    present: Tensor
    """[B, K]: permitted workers; the others are padding."""
    asked: Tensor
    """[B, K]: answered, or failed, in an earlier round."""
    answer: Tensor
    """[B, K] int64: equal where answers agree, negative where there is none to compare."""
    pending: Tensor
    """[B, K]: asked in this round, so not heard yet."""
    weight: Tensor
    """[B] float: lambda."""
    rounds_left: Tensor
    """[B] int64: rounds that may follow this one."""
    calls_left: Tensor
    """[B] int64: calls that may still be made, this round's pending ones taken off."""
    steps_left: Tensor
    """[B] int64: lines that the plan may still get."""


class Seen(NamedTuple):
    """What the network makes of a state, but for the scores."""

    belief: Belief
    best: Tensor
    """[B]: chance that the best answer at hand is right."""
    price: Tensor
    """[B, K]: lambda times the expected cost."""
    worker: Tensor
    """[B, K, WORKER_FEATURES]"""
    state: Tensor
    """[B, STATE_FEATURES]"""
    open: Tensor
    """[B, 4K] bool: which choices the grammar allows."""


class Pointer(nn.Module):
    """Scores every choice from the features of workers and state."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.into = nn.Linear(WORKER_FEATURES + STATE_FEATURES, hidden)
        self.mix = nn.Linear(3 * hidden, hidden)
        self.out = nn.Linear(hidden, 4)
        self.sharpness = nn.Parameter(torch.tensor(20.0))
        with torch.no_grad():
            self.out.weight.mul_(0.1)
            self.out.bias.copy_(torch.tensor([0.0, 0.5, 0.0, 0.0]))

    def forward(self, seen: Seen, present: Tensor) -> Tensor:
        """Scores of all choices, [B, 4K]; those that are closed lie far below."""
        workers = present.shape[1]
        spread = seen.state[:, None].expand(-1, workers, -1)
        each = torch.relu(self.into(torch.cat([seen.worker, spread], 2)))
        there = present[:, :, None].to(each.dtype)
        mean = (each * there).sum(1) / there.sum(1).clamp(min=1)
        most = (each * there).amax(1)  # after relu nothing is below zero
        pool = torch.cat([mean, most], 1)[:, None].expand(-1, workers, -1)
        scores = 3.0 * self.out(torch.relu(self.mix(torch.cat([each, pool], 2))))
        look = self.sharpness * seen.worker[:, :, 6]
        last = self.sharpness * seen.worker[:, :, 13]
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
        self.appraise = nn.Linear(WORKER_FEATURES + STATE_FEATURES + domains + 1, 2)
        """Correction of the chance that an answer is right, for one kept and one taken unseen."""
        self.pointers = nn.ModuleList(Pointer(hidden) for _ in range(pointers))
        with torch.no_grad():
            self.appraise.weight.zero_()
            self.appraise.bias.zero_()

    def pointer(self) -> list[nn.Parameter]:
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
        domain = _familiar(domain, state)
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


def _familiar(domain: Tensor, state: State) -> Tensor:
    """Domain probabilities over those domains alone that some card of the pool says anything of:
    a skill of 0 stands for none. All of them, where no card says anything."""
    known = ((state.skill > 0) & state.present[:, :, None]).any(1).to(domain.dtype)
    left = domain * known
    total = left.sum(1, keepdim=True)
    return torch.where(total > 1e-6, left / total.clamp(min=1e-6), domain)


def grammar(state: State, belief: Belief) -> Tensor:
    """Which choices may be made, [B, 4K] bool; at least one, if any worker is present.

    KEEP stands for the likeliest answer alone, at the most able of the workers that gave it, so
    that the order of the pool decides nothing but exact ties; where no answer can be compared, at
    the most able of those that were asked.
    """
    free = state.present & ~state.asked & ~state.pending & (state.calls_left > 0)[:, None]
    free = free & (state.steps_left > 0)[:, None]
    alone = ~state.pending.any(1, keepdim=True)
    further = (state.rounds_left > 0)[:, None]
    two = ((state.steps_left > 1) & (state.calls_left > 1))[:, None]
    after = (free.sum(1, keepdim=True) > 1) & two & further
    heard = state.asked & (state.answer >= 0)
    some = torch.where(heard.any(1, keepdim=True), heard, state.asked & state.present)
    likely = _highest(belief.accepted, some)
    keep = _highest(belief.prior, likely)
    keep = keep & (torch.cumsum(keep.to(torch.int64), 1) == 1) & alone
    look = free & further
    last = (
        free & alone & ~further
    )  # else LOOK and then KEEP says the same, and can still think better
    return torch.cat([free & after, look, last, keep], 1)


def _highest(values: Tensor, among: Tensor) -> Tensor:
    """Which of `among` [B, K] have the highest value, near enough."""
    most = torch.where(among, values, torch.full_like(values, -1.0)).amax(1, keepdim=True)
    return among & (values >= most - 1e-6)


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
