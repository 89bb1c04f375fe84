"""Plays plans against recorded outcomes: many requests side by side, round by round.

Every episode is one request: a prompt, a pool drawn at random (which workers, in which order, at
which prices, whom policy does not permit), a cost preference and limits. The policy chooses; a
round's choices become the very `Plan` that the daemon would run (`planner/decode.py`), and what it
then means, which steps run, what a vote elects, which answer stands, whether a round follows, is
asked of `run/exchange.py`, as the executor does. Here are only the records instead of the workers.

A worker without a recorded outcome fails, as one that is down would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conductor.plan.language import Plan
from conductor.planner.decode import asking, keeping
from conductor.run.exchange import Limits, Progress, goes_on, room, settle
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.state import KEEP, LOOK, MORE, State


@dataclass(frozen=True)
class Draw:
    """How episodes are drawn."""

    pool: int = 11
    """Largest pool."""
    whole: float = 0.4
    """Share of prompts that get as many workers as they can; else a random number of at least 2."""
    weights: tuple[float, float] = (0.003, 2.0)
    """Range of lambda, drawn evenly on a log scale."""
    price_spread: float = 0.3
    """Standard deviation of the log of the factor on each worker's price."""
    card_outcomes: tuple[int, int] = (15, 400)
    """Range of how many outcomes a domain's skill on a card looks as if measured on."""
    refused: float = 0.1
    """Share of a pool that policy does not permit."""
    max_rounds: tuple[int, int] = (1, 5)
    max_calls: tuple[int, int] = (2, 6)


@dataclass(frozen=True)
class Hand:
    """Requests dealt out: B episodes over pools of K places. Tensors as in `State` and `Deck`."""

    rows: Tensor
    """[B] prompt of each."""
    columns: Tensor
    """[B, K] worker in each place."""
    present: Tensor
    skill: Tensor
    cost: Tensor
    """[B, K, D] expected, at this pool's prices."""
    spend: Tensor
    """[B, K] what the recorded answer cost, at this pool's prices."""
    weight: Tensor
    limits: tuple[Limits, ...]


def deal(deck: Deck, draw: Draw, prompts: int, group: int, columns: Sequence[int],
         rng: np.random.Generator) -> Hand:  # fmt: skip
    """Draw `prompts` requests over the workers in `columns`, each `group` times in a row."""
    places = min(draw.pool, len(columns))
    rows = rng.integers(0, len(deck.score), prompts)
    recorded = torch.isfinite(deck.score).numpy()[:, list(columns)][rows]
    order = np.argsort(rng.random(recorded.shape) + 2.0 * ~recorded, 1)[:, :places]
    many = np.minimum(recorded.sum(1), places)
    wanted = np.where(rng.random(prompts) < draw.whole, many, rng.integers(2, places + 1, prompts))
    present = np.arange(places)[None] < np.minimum(wanted, many)[:, None]
    allowed = rng.random(present.shape) >= draw.refused
    allowed[np.arange(prompts), 0] = True
    present &= allowed
    shuffled = np.argsort(rng.random(order.shape), 1)
    order = np.take_along_axis(order, shuffled, 1)
    present = np.take_along_axis(present, shuffled, 1)
    chosen = torch.tensor(np.array(columns)[order])
    skill = _as_if_measured(deck.skill[chosen], draw, rng)
    factor = torch.tensor(
        np.exp(rng.normal(0, draw.price_spread, order.shape)), dtype=torch.float32
    )
    low, high = np.log(draw.weights)
    weight = torch.tensor(np.exp(rng.uniform(low, high, prompts)), dtype=torch.float32)
    comparable = deck.comparable.numpy()[rows]
    limits = [_limits(draw, bool(known), rng) for known in comparable]
    return repeat(
        hand(
            deck, torch.tensor(rows), chosen, torch.tensor(present), skill, factor, weight, limits
        ),
        group,
    )


def hand(
    deck: Deck,
    rows: Tensor,
    columns: Tensor,
    present: Tensor,
    skill: Tensor,
    factor: Tensor,
    weight: Tensor,
    limits: Sequence[Limits],
) -> Hand:
    """Requests over given pools; `factor` [B, K] multiplies prices."""
    spend = deck.tokens[rows[:, None], columns] * deck.price[columns] / 1000 * factor
    cost = deck.cost[columns] * factor[:, :, None]
    told = (deck.known[columns] & present[:, :, None]).sum(1) * 2 > present.sum(1, keepdim=True)
    skill = (
        skill * told[:, None]
    )  # a domain that most of the pool was never measured in tells nothing
    return Hand(rows, columns, present, skill, cost, spend, weight, tuple(limits))


def repeat(dealt: Hand, group: int) -> Hand:
    """Every request `group` times in a row."""
    tensors = {
        name: getattr(dealt, name).repeat_interleave(group, 0)
        for name in ("rows", "columns", "present", "skill", "cost", "spend", "weight")
    }
    limits = tuple(limits for limits in dealt.limits for _ in range(group))
    return replace(dealt, limits=limits, **tensors)


def _as_if_measured(skill: Tensor, draw: Draw, rng: np.random.Generator) -> Tensor:
    """Cards with the noise of having been measured on few outcomes."""
    low, high = np.log(draw.card_outcomes)
    count = np.exp(rng.uniform(low, high, (*skill.shape[:2], 1)))
    noise = torch.tensor(rng.normal(size=tuple(skill.shape)) / np.sqrt(count), dtype=torch.float32)
    return (skill + noise * torch.sqrt(skill * (1 - skill))).clamp(0.02, 0.98)


def _limits(draw: Draw, comparable: bool, rng: np.random.Generator) -> Limits:
    """Where no answers can be compared there is nothing to look at: one round."""
    low, high = draw.max_rounds
    rounds = int(rng.integers(low, high + 1)) if comparable else 1
    return Limits(
        max_rounds=rounds, max_calls=int(rng.integers(draw.max_calls[0], draw.max_calls[1] + 1))
    )


class Episodes:
    """A batch being played. `live` [B] tells which still wait for a choice."""

    def __init__(self, deck: Deck, dealt: Hand) -> None:
        count, places = dealt.present.shape
        self.deck, self.hand = deck, dealt
        self.live = torch.ones(count, dtype=torch.bool)
        self.asked = torch.zeros(count, places, dtype=torch.bool)
        self.pending = torch.zeros(count, places, dtype=torch.bool)
        self.answer = deck.answer[dealt.rows[:, None], dealt.columns]
        self.recorded = torch.isfinite(deck.score[dealt.rows[:, None], dealt.columns])
        self.progress = [Progress()] * count
        self.plans: list[list[Plan]] = [[] for _ in range(count)]
        self.lines: list[list[int]] = [[] for _ in range(count)]
        self.steps: list[list[int]] = [[] for _ in range(count)]
        """The worker's place of every step so far, -1 for a vote."""
        rooms = [room(limits, Progress().used) for limits in dealt.limits]
        self.room = torch.tensor([[r.rounds_left, r.calls_left, r.max_steps] for r in rooms])

    def state(self, chosen: Tensor) -> State:
        """What the policy is shown of the episodes at `chosen` [N]."""
        dealt, pending = self.hand, self.pending[chosen]
        rows, made = dealt.rows[chosen], pending.sum(1)
        answer = torch.where(self.recorded[chosen], self.answer[chosen], -1)
        return State(
            prompt=self.deck.prompt[rows],
            skill=dealt.skill[chosen],
            cost=dealt.cost[chosen],
            present=dealt.present[chosen],
            asked=self.asked[chosen],
            answer=torch.where(self.asked[chosen], answer, -1),
            pending=pending,
            weight=dealt.weight[chosen],
            rounds_left=self.room[chosen, 0],
            calls_left=self.room[chosen, 1] - made,
            steps_left=self.room[chosen, 2] - made,
        )

    def read(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Domain probabilities and ease of the chosen episodes' prompts, as the deck has them."""
        rows = self.hand.rows[chosen]
        return self.deck.domain[rows], self.deck.ease[rows]

    def choose(self, chosen: Tensor, choice: Tensor) -> None:
        """Make one choice, 0..4K-1, in each of the chosen episodes."""
        places = self.hand.present.shape[1]
        kinds, workers = (choice // places).tolist(), (choice % places).tolist()
        for episode, kind, place in zip(chosen.tolist(), kinds, workers, strict=True):
            if kind == KEEP:
                self._play(episode, self._kept(episode, place), look=False)
                continue
            self.lines[episode].append(place)
            self.pending[episode, place] = True
            if kind != MORE:
                first = self.progress[episode].used.steps
                self._play(episode, asking(first, self.lines[episode]), look=kind == LOOK)

    def _kept(self, episode: int, place: int) -> Plan:
        progress = self.progress[episode]
        return keeping(progress.used.steps, self.steps[episode].index(place), progress.stands)

    def _play(self, episode: int, plan: Plan, look: bool) -> None:
        """Run one round from the records."""
        before, limits = self.progress[episode], self.hand.limits[episode]
        asked = self.lines[episode]
        known, said = self.recorded[episode].tolist(), self.answer[episode].tolist()
        answered = tuple(
            (plan.first + i, said[place]) for i, place in enumerate(asked) if known[place]
        )
        look = goes_on(plan, look, limits, before.used)
        after = _settled(before, plan, look, answered, len(asked))
        self.progress[episode] = after
        self.plans[episode].append(plan)
        self.steps[episode] += asked or [-1] * len(plan.steps)
        self.asked[episode] |= self.pending[episode]
        self.pending[episode] = False
        self.lines[episode] = []
        self.live[episode] = look
        left = room(limits, after.used)
        self.room[episode] = torch.tensor([left.rounds_left, left.calls_left, left.max_steps])

    def quality(self) -> NDArray[np.float64]:
        """Score of the answer that stands, [B]; 0 where there is none."""
        score = self.deck.score[self.hand.rows[:, None], self.hand.columns].numpy()
        out = np.zeros(len(self.progress))
        for episode, progress in enumerate(self.progress):
            if progress.stands is not None:
                out[episode] = score[episode, self.steps[episode][progress.stands]]
        return out

    def cost(self) -> NDArray[np.float64]:
        """What all answers cost, USD per 1,000 such requests, [B]."""
        paid = self.asked & self.recorded
        return np.asarray((self.hand.spend * paid).sum(1).numpy(), np.float64)

    def tokens(self) -> NDArray[np.float64]:
        """Output tokens of all answers, [B]."""
        each = self.deck.tokens[self.hand.rows[:, None], self.hand.columns]
        return np.asarray((each * (self.asked & self.recorded)).sum(1).numpy(), np.float64)

    def rounds(self) -> NDArray[np.int64]:
        return np.array([progress.used.rounds for progress in self.progress])


@lru_cache(maxsize=262_144)
def _settled(
    before: Progress, plan: Plan, look: bool, answered: tuple[tuple[int, int], ...], made: int
) -> Progress:
    return settle(before, plan, look, dict(answered), made)
