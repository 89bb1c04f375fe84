"""A start at the level of what is to be beaten: copy the best fixed strategy of every request.

Of a small pool, every strategy of `baselines/fixed.py` that stops as soon as answers agree is
played on the training prompts once. A request is then played by the one that is best for its
workers, lambda and limits on prompts of its domain, and the policy learns to choose what that
chose. What it knows besides, how hard the prompt is and what prices are, is left to be learned
from rewards.

Shapes: S strategies of up to 4 workers, W workers, D domains; B requests, K places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conductor_build.baselines.choose import SEARCHED
from conductor_build.baselines.fixed import Agree, Agree3, Fixed, Single, Vote, fixed_strategies
from conductor_build.baselines.plays import Records
from conductor_build.environment import Episodes, Hand
from conductor_build.grounds import Ground
from conductor_build.grpo import Figures, Objective, Rollout, rewards
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.network import Pocket, Seen
from conductor_build.pocket.state import KEEP, LAST, LOOK, State

LONGEST = 4
"""Workers of the longest strategy."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lesson:
    """A ground, and what every strategy over its workers gives on its prompts."""

    ground: Ground
    order: Ints
    """[S, LONGEST] workers in the order they are asked, as places in the ground's columns; -1 after
    the last."""
    score: Floats
    """[S, D] mean over prompts with the outcomes it needs, of a domain without prompts over all;
    NaN where there are none."""
    cost: Floats
    """[S, D] the same"""

    @property
    def share(self) -> float:
        """How often it is drawn from."""
        return self.ground.share

    @property
    def length(self) -> Ints:
        """[S] how many workers a strategy may ask."""
        return np.asarray((self.order >= 0).sum(1))

    def best(self, deck: Deck, dealt: Hand) -> Ints:
        """The strategy of highest utility of each request, as places of its own pool, [B, LONGEST].

        Lambda and domain are the request's, prices those of the records.
        """
        place = np.full(deck.score.shape[1], -1)
        place[list(self.ground.columns)] = np.arange(len(self.ground.columns))
        pool = place[dealt.columns.numpy()]  # [B, K]
        there = np.zeros((len(pool), len(self.ground.columns) + 1), bool)  # the last: nobody
        there[np.arange(len(pool))[:, None], pool] = dealt.present.numpy()
        there[:, -1] = True
        most = np.array([min(one.max_rounds, one.max_calls) for one in dealt.limits])
        domain = deck.domain[dealt.rows].argmax(1).numpy()
        utility = self.score[:, domain] - dealt.weight.numpy() * self.cost[:, domain]  # [S, B]
        able = there[:, self.order].all(2).T & (self.length[:, None] <= most)
        # Some worker alone is always able, even if nobody knows how well it does.
        utility = np.nan_to_num(utility, nan=-1e6)
        chosen = np.where(able, utility, -np.inf).argmax(0)
        wanted = self.order[chosen]
        found = (pool[:, None, :] == wanted[:, :, None]) & dealt.present.numpy()[:, None, :]
        return np.where(wanted >= 0, found.argmax(2), -1)


def lessons(grounds: Sequence[Ground]) -> list[Lesson]:
    """Of every ground whose answers can be compared and whose pool is small enough to try all
    strategies. Where there is none such, larger pools are cut down to their best workers, and
    where no answers can be compared at all single workers are what there is to copy."""
    found = [one for one in grounds if bool(one.deck.comparable.any())] or list(grounds)
    small = [one for one in found if len(one.columns) <= SEARCHED]
    return [_lesson(one) for one in small or map(_cut, found)]


def _cut(ground: Ground) -> Ground:
    """The ground over those of its workers that are best alone, at one lambda or another."""
    columns = np.array(ground.columns)
    score, cost = (values.numpy()[:, columns] for values in (ground.deck.score, _cost(ground.deck)))
    there = np.isfinite(score)
    count = np.maximum(there.sum(0), 1)
    mean, spent = (np.where(there, one, 0.0).sum(0) / count for one in (score, cost))
    ranked = [np.argsort(-(mean - weight * spent), kind="stable") for weight in (0.003, 0.1, 2.0)]
    best = dict.fromkeys(int(place) for turn in zip(*ranked, strict=True) for place in turn)
    kept = sorted(list(best)[:SEARCHED])
    return replace(ground, columns=tuple(int(column) for column in columns[kept]))


def _cost(deck: Deck) -> Tensor:
    return deck.tokens * deck.price / 1000


def _lesson(ground: Ground) -> Lesson:
    deck, columns = ground.deck, list(ground.columns)
    names = [f"{place:02}" for place in range(len(columns))]
    comparable = bool(deck.comparable.any())
    records = Records(
        names=tuple(names),
        score=_turned(deck.score[:, columns]),
        cost=_turned(_cost(deck)[:, columns]),
        answer=deck.answer[:, columns].numpy().T.astype(np.int32),
        comparable=comparable,
    )
    domain = deck.domain.argmax(1).numpy()
    within = np.eye(deck.domain.shape[1])[domain]  # [P, D]
    within[:, within.sum(0) == 0] = 1.0
    mean_cost = records.cost.mean(1)
    order: list[list[int]] = []
    score: list[Floats] = []
    spent: list[Floats] = []
    for strategy in fixed_strategies(names, comparable):
        if isinstance(strategy, Vote):
            continue
        plays = strategy.on(records)
        known = np.isfinite(plays.score)
        count = known @ within
        order.append(_order(strategy, mean_cost))
        for values, into in ((plays.score, score), (plays.cost, spent)):
            total = np.where(known, values, 0.0) @ within
            into.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
    return Lesson(ground, np.array(order), np.array(score), np.array(spent))


def _turned(values: Tensor) -> Floats:
    return np.ascontiguousarray(values.numpy().T, dtype=np.float64)


def _order(strategy: Fixed, cost: Floats) -> list[int]:
    """Whom a strategy asks, one after the other; of a pair the cheaper first."""
    if isinstance(strategy, Single):
        asked = [int(strategy.worker)]
    else:
        assert isinstance(strategy, Agree | Agree3)
        asked = sorted(map(int, strategy.pair), key=lambda place: float(cost[place]))
        if isinstance(strategy, Agree3):
            asked.append(int(strategy.third))
        asked.append(int(strategy.last))
    return asked + [-1] * (LONGEST - len(asked))


def copy(
    lesson: Lesson,
    pocket: Pocket,
    optimiser: torch.optim.Optimizer,
    critic: torch.optim.Optimizer,
    deck: Deck,
    dealt: Hand,
    objective: Objective,
    generator: torch.Generator,
) -> Figures:
    """One batch: play every request by its best strategy, then, in each pass, one step down the
    cross-entropy to what that chose, less the entropy bonus. `deck` is the lesson's; critic and
    generator have nothing to do."""
    order = torch.tensor(lesson.best(deck, dealt))
    episodes = Episodes(deck, dealt)
    moments: list[tuple[Seen, Tensor, Tensor]] = []
    while episodes.live.any():
        chosen = torch.nonzero(episodes.live)[:, 0]
        state = episodes.state(chosen)
        with torch.no_grad():
            seen = pocket.see(state, *episodes.read(chosen))
        choice = _choice(order[chosen], state, seen)
        moments.append((seen, state.present, choice))
        episodes.choose(chosen, choice)
    for _ in range(objective.passes):
        losses, entropies, count = [], [], 0
        for seen, present, choice in moments:
            log = torch.log_softmax(pocket.score(seen, present), 1)
            losses.append(torch.nn.functional.nll_loss(log, choice, reduction="sum"))
            entropies.append(-(log.exp() * log.clamp(min=-50)).sum())
            count += len(log)
        entropy = torch.stack(entropies).sum() / count
        loss = torch.stack(losses).sum() / count - objective.entropy * entropy
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(pocket.pointer_parameters(), objective.max_gradient)
        optimiser.step()
    recorded = rewards(Rollout(episodes, [], torch.zeros(len(dealt.rows))), objective)[1]
    return Figures.of(episodes, recorded, float(loss.detach()), float(entropy.detach()))


def _choice(order: Tensor, state: State, seen: Seen) -> Tensor:
    """What the strategies [N, LONGEST] choose next, [N]."""
    places = state.present.shape[1]
    done = state.asked.sum(1)
    said = torch.where(order >= 0, state.answer.gather(1, order.clamp(min=0)), -1)
    same = (said[:, :, None] == said[:, None, :]) & (said >= 0)[:, :, None]
    same = same & torch.tril(torch.ones(LONGEST, LONGEST, dtype=torch.bool), -1)
    length = (order >= 0).sum(1)
    # Answers that were not heard yet are none and agree with nothing.
    stops = (done >= length) | ((length > 1) & same.any(2).any(1))
    place = order.gather(1, done.clamp(max=LONGEST - 1)[:, None])[:, 0].clamp(min=0)
    kind = torch.where(state.rounds_left > 0, LOOK, LAST)
    kept = seen.open[:, KEEP * places :].to(torch.int64).argmax(1)
    return torch.where(stops, KEEP * places + kept, kind * places + place)
