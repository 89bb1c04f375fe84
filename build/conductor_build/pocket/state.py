"""Where requests stand, in the middle of being planned, and what may be done next.

Four things can be done about every worker, and a decode step chooses one of 4K:

    MORE    ask it, and write a further line of this round's plan
    LOOK    ask it, end the plan, and look at the answers before anything is accepted
    LAST    ask it, and take what it answers: only when no round is left
    KEEP    end with the answer it gave in an earlier round

Shapes: B states, K workers, D domains, F prompt features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from conductor_build.pocket.latent import Belief

MORE, LOOK, LAST, KEEP = range(4)


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


def familiar(domain: Tensor, state: State) -> Tensor:
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
