"""The expected policy gradient: all that may come of a request, instead of a sample of it.

Outcomes are recorded, so a request's next states follow from its choices alone, and what a policy
would earn on it is a sum over a tree. `grpo.py` draws a group of paths through it; here the tree is
opened as far as the policy itself would go, states that are reached on several ways once, and every
choice is credited with what the policy would earn after it less what it would earn anyway. No
luck of the draw is left but that of the prompts (Ciosek and Whiteson 2018, arXiv:1801.03326).

    open      states by depth, each with the chance that the policy gets there     grow()
    credit    from the leaves back: value of every choice and state                _credit()
    improve   clipped surrogate over states times chances, entropy as an option    _loss()

A branch that is reached less often than `objective.prune` is opened with a chance in proportion and
counts for the more (Russian roulette), so that hardly ever chosen choices are still tried; but one
branch of every state is opened in any case, so that no value is that of giving up.

Shapes: N states of one depth, K workers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conductor.plan.language import MAX_STEPS, MAX_TOTAL_STEPS
from conductor_build.environment import Hand
from conductor_build.grpo import Figures, Objective
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.network import Pocket, Seen
from conductor_build.pocket.state import KEEP, LAST, LOOK, State

SPREAD = 0.25
"""What advantages are divided by: about the standard deviation of rewards within a group of
`grpo.py`, so that an entropy bonus weighs the same there and here."""
_ROUNDS = 8
"""More than a request may have."""


@dataclass
class Level:
    """The states after as many choices."""

    state: State
    seen: Seen
    reach: Tensor
    """[N] chance that the policy gets there, times the mean weight of roulette on the way."""
    log: Tensor
    """[N, 4K] log-probabilities of all choices."""
    opened: Tensor
    """[N, 4K] bool: choices whose value is known."""
    weight: Tensor
    """[N, 4K] chance of a choice, over the chance that it was opened; 0 where it was not."""
    value: Tensor
    """[N, 4K] what the policy earns from there on, and all before it has cost: the reward."""
    parts: Tensor
    """[N, 4K, 4] the same of quality, cost, calls and rounds."""
    parents: tuple[Tensor, Tensor]
    """Places [M], [M] of the choices that lead on,"""
    child: Tensor
    """[M] and the state of the next level that each leads to."""


@dataclass(frozen=True)
class _Records:
    """What the workers of each request's pool would answer, [B, K]."""

    score: Tensor
    answer: Tensor
    spend: Tensor

    @classmethod
    def of(cls, deck: Deck, dealt: Hand) -> _Records:
        rows = dealt.rows[:, None]
        score = deck.score[rows, dealt.columns]
        there = torch.isfinite(score)
        answer = deck.answer[rows, dealt.columns]
        return cls(
            torch.nan_to_num(score),
            torch.where(there, answer, torch.full_like(answer, -1)),
            dealt.spend * there,
        )


@dataclass
class _Front:
    """The states that are to be scored next."""

    request: Tensor
    asked: Tensor
    pending: Tensor
    rounds: Tensor
    reach: Tensor


def grow(
    pocket: Pocket, deck: Deck, dealt: Hand, objective: Objective, generator: torch.Generator
) -> list[Level]:
    """Every level of the tree of all requests, from the first choice on, with values."""
    count, places = dealt.present.shape
    records = _Records.of(deck, dealt)
    nobody = torch.zeros(count, places, dtype=torch.bool)
    front = _Front(
        torch.arange(count), nobody, nobody, torch.zeros(count, dtype=torch.int64),
        torch.ones(count),
    )  # fmt: skip
    limits = torch.tensor([[one.max_rounds, one.max_calls] for one in dealt.limits])
    levels = []
    while len(front.request):
        level, front = _open(pocket, deck, dealt, records, limits, front, objective, generator)
        levels.append(level)
    _credit(levels)
    return levels


def _open(
    pocket: Pocket,
    deck: Deck,
    dealt: Hand,
    records: _Records,
    limits: Tensor,
    front: _Front,
    objective: Objective,
    generator: torch.Generator,
) -> tuple[Level, _Front]:
    """Score the states of a front; returns them, and the front after them."""
    request, places = front.request, front.asked.shape[1]
    calls = (front.asked | front.pending).sum(1)
    state = State(
        prompt=deck.prompt[:1].expand(len(request), -1),  # it was read already
        skill=dealt.skill[request],
        cost=dealt.cost[request],
        present=dealt.present[request],
        asked=front.asked,
        answer=torch.where(front.asked, records.answer[request], -1),
        pending=front.pending,
        weight=dealt.weight[request],
        rounds_left=limits[request, 0] - 1 - front.rounds,
        calls_left=limits[request, 1] - calls,
        steps_left=(MAX_TOTAL_STEPS - front.asked.sum(1)).clamp(max=MAX_STEPS)
        - front.pending.sum(1),
    )
    rows = dealt.rows[request]
    with torch.no_grad():
        seen = pocket.see(state, deck.domain[rows], deck.ease[rows])
    log = torch.log_softmax(pocket.score(seen, state.present), 1)
    chance = log.detach().exp() * seen.open
    parts = _if_it_ended(records, request, front, places)
    value = (
        parts[:, :, 0]
        - state.weight[:, None] * parts[:, :, 1]
        - objective.weights.per_round * (parts[:, :, 3] - 1)
    ).clamp(min=objective.weights.floor)
    kind = torch.arange(4 * places) // places
    leads = seen.open & (kind <= LOOK)
    opened, weight = _opened(chance, leads, front.reach, objective.prune, generator)
    opened, weight = opened | (seen.open & ~leads), torch.where(leads, weight, chance)
    parent, choice = torch.nonzero(opened & leads, as_tuple=True)
    parents = (parent, choice)
    child, after = _after(front, parents, (front.reach[:, None] * weight)[parents], places)
    level = Level(state, seen, front.reach, log, opened, weight, value, parts, parents, child)
    return level, after


def _opened(
    chance: Tensor, leads: Tensor, reach: Tensor, prune: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Which of the choices that lead on are opened, one at least, and for how much each of them
    counts: together as much as all have chances. Both [N, 4K]."""
    chance = chance * leads
    share = (reach[:, None] * chance / prune).clamp(max=1.0)
    drawn = torch.rand(chance.shape, generator=generator) < share
    # One at random for those that drew none; some number for those that have none.
    one = torch.multinomial(chance + 1e-12, 1, generator=generator)
    none = ~drawn.any(1, keepdim=True)
    drawn = drawn.scatter(1, one, drawn.gather(1, one) | none) & leads
    weight = drawn * torch.where(none, torch.ones_like(chance), chance / share.clamp(min=1e-9))
    total = weight.sum(1, keepdim=True).clamp(min=1e-9)
    return drawn, weight * (chance.sum(1, keepdim=True) / total)


def _if_it_ended(records: _Records, request: Tensor, front: _Front, places: int) -> Tensor:
    """Quality, cost, calls and rounds [N, 4K, 4] of requests that end with each choice."""
    score, spend = records.score[request], records.spend[request]
    heard = (spend * front.asked).sum(1, keepdim=True)
    parts = torch.zeros(len(request), 4, places, 4)
    parts[:, LAST, :, 0] = parts[:, KEEP, :, 0] = score
    parts[:, LAST, :, 1], parts[:, KEEP, :, 1] = heard + spend, heard
    parts[:, KEEP, :, 2] = front.asked.sum(1, keepdim=True).to(score.dtype)
    parts[:, LAST, :, 2] = parts[:, KEEP, :, 2] + 1
    parts[:, LAST:, :, 3] = front.rounds[:, None, None].to(score.dtype) + 1
    return parts.flatten(1, 2)


def _after(
    front: _Front, parents: tuple[Tensor, Tensor], reach: Tensor, places: int
) -> tuple[Tensor, _Front]:
    """The states that choices lead to, each once, and which of them each choice leads to."""
    state, choice = parents
    place = choice % places
    looks = choice // places == LOOK
    with_it = front.pending[state] | torch.nn.functional.one_hot(place, places).bool()
    asked = front.asked[state] | (with_it & looks[:, None])
    pending = with_it & ~looks[:, None]
    rounds = front.rounds[state] + looks
    request = front.request[state]
    bits = (torch.cat([asked, pending], 1).to(torch.int64) << torch.arange(2 * places)).sum(1)
    key = ((request * _ROUNDS + rounds) << 2 * places) + bits
    keys, to = torch.unique(key, return_inverse=True)
    first = torch.empty(len(keys), dtype=torch.int64)
    first[to] = torch.arange(len(to))  # any of them: they are the same
    total = torch.zeros(len(keys)).index_add(0, to, reach)
    return to, _Front(request[first], asked[first], pending[first], rounds[first], total)


def _credit(levels: list[Level]) -> None:
    """From the last level back: what comes of every choice that leads on."""
    later: Level | None = None
    for level in reversed(levels):
        if later is not None:
            level.value[level.parents] = earned(later)[level.child]
            shares = later.weight / later.weight.sum(1, keepdim=True).clamp(min=1e-9)
            level.parts[level.parents] = (shares[:, :, None] * later.parts).sum(1)[level.child]
        level.value.masked_fill_(~level.opened, 0.0)
        level.parts.masked_fill_(~level.opened[:, :, None], 0.0)
        later = level


def earned(level: Level) -> Tensor:
    """What the policy earns from each state on, [N], by the choices that were opened."""
    return (level.weight * level.value).sum(1) / level.weight.sum(1).clamp(min=1e-9)


def step(
    pocket: Pocket,
    optimiser: torch.optim.Optimizer,
    critic: torch.optim.Optimizer,
    deck: Deck,
    dealt: Hand,
    objective: Objective,
    generator: torch.Generator,
) -> Figures:
    """One batch: open, credit, improve. The critic has nothing to do: records alone are paid."""
    levels = grow(pocket, deck, dealt, objective, generator)
    gains = [
        level.reach[:, None] * level.weight * (level.value - earned(level)[:, None]) / SPREAD
        for level in levels
    ]
    before = [level.log.detach() for level in levels]
    losses, entropies = [], []
    for number in range(objective.passes):
        logs = [
            torch.log_softmax(pocket.score(level.seen, level.state.present), 1)
            if number
            else level.log
            for level in levels
        ]
        loss, entropy = _loss(levels, logs, before, gains, objective, len(dealt.rows))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(pocket.pointer_parameters(), objective.max_gradient)
        optimiser.step()
        losses.append(float(loss.detach()))
        entropies.append(entropy)
    first = levels[0]
    shares = first.weight / first.weight.sum(1, keepdim=True).clamp(min=1e-9)
    quality, cost, calls, rounds = (shares[:, :, None] * first.parts).sum(1).mean(0).tolist()
    return Figures(
        float(earned(first).mean()), quality, cost, float(np.mean(entropies)), calls, rounds,
        float(np.mean(losses)),
    )  # fmt: skip


def _loss(
    levels: list[Level],
    logs: list[Tensor],
    before: list[Tensor],
    gains: list[Tensor],
    objective: Objective,
    count: int,
) -> tuple[Tensor, float]:
    """The clipped surrogate's loss, and the mean entropy of a request's choices together."""
    gained, entropy = torch.zeros(()), torch.zeros(())
    for level, log, old, gain in zip(levels, logs, before, gains, strict=True):
        ratio = torch.exp((log - old).masked_fill(~level.opened, 0.0))
        held = ratio.clamp(1 - objective.clip, 1 + objective.clip)
        gained = gained + torch.minimum(ratio * gain, held * gain).sum()
        each = -(log.exp() * log.clamp(min=-50)).sum(1)
        entropy = entropy + (level.reach * each).sum()
    loss = -(gained + objective.entropy * entropy) / count
    return loss, float(entropy.detach()) / count
