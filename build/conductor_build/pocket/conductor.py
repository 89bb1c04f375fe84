"""A trained conductor as a strategy: its network plays recorded prompts to their end, greedily.

Rounds, votes, limits and what stands in the end are those of `environment.py`, and so of the
daemon. It is shown cards and prompt features, and of the records only the answers it asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from conductor.run.exchange import Limits
from conductor_build.baselines.plays import EvaluationError, Plays
from conductor_build.environment import Episodes, hand
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.decoder import AT_ONCE, Decoder
from conductor_build.pocket.latent import EASE
from conductor_build.pocket.state import LOOK, State

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Floats, Rows
    from conductor_build.outcomes import Table

PER_CALL = 1000.0
"""Tokens of an answer whose call has one price: what `cards.py` says of such workers."""


@dataclass(frozen=True, eq=False)
class Card:
    """What the conductor is told of one worker: skill and output tokens in each domain, [D]."""

    skill: NDArray[np.float32]
    tokens: NDArray[np.float32]
    known: NDArray[np.bool_]
    """[D] which domains it was measured in."""


@dataclass(frozen=True, eq=False)
class Playing:
    """A conductor at one cost preference, as the judge plays it.

    `vectors` [P, F] are the prompt features of the judged table's rows; `cards` has every worker
    of the pool by name; `weight` is lambda as the network is told it.
    """

    decoder: Decoder
    vectors: NDArray[np.float32]
    cards: Mapping[str, Card]
    limits: Limits
    weight: float
    name: str = "pocket"

    def play(self, table: Table, rows: Rows) -> Plays:
        """Score and cost of each prompt of `rows`. `table` holds the pool, in its order; a worker
        without a recorded outcome fails, and an episode without an answer scores 0."""
        index, deck = np.asarray(rows, dtype=np.int64), deck_of(table, self.vectors, self.cards)
        charged = np.nan_to_num(table.cost())
        score, cost = np.zeros(len(index)), np.zeros(len(index))
        for start in range(0, len(index), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            episodes = self._played(deck, torch.tensor(index[part]))
            asked = (episodes.asked & episodes.recorded).numpy()
            score[part] = episodes.quality()
            # Charged by the same numbers as every baseline.
            cost[part] = (charged[index[part]] * asked).sum(1)
        return Plays(score, cost)

    def _played(self, deck: Deck, rows: torch.Tensor) -> Episodes:
        count, places = len(rows), deck.score.shape[1]
        columns = torch.arange(places).expand(count, -1)
        once = replace(self.limits, max_rounds=1)
        dealt = hand(
            deck,
            rows,
            columns,
            torch.ones(count, places, dtype=torch.bool),
            deck.skill[columns],
            torch.ones(count, places),
            torch.full((count,), self.weight),
            [self.limits if known else once for known in deck.comparable[rows].tolist()],
        )
        episodes = Episodes(deck, dealt)
        while episodes.live.any():
            chosen = torch.nonzero(episodes.live)[:, 0]
            state = episodes.state(chosen)
            choice = torch.tensor(self.decoder.scores(state).argmax(1))
            partner = self._partners(state, choice)
            beside = partner >= 0
            # As `planner/greedy.py` does: with the one that is looked at, the one after it.
            first = torch.where(beside, choice % places, choice)
            episodes.choose(chosen, first)
            if beside.any():
                episodes.choose(chosen[beside], LOOK * places + partner[beside])
        return episodes

    def _partners(self, state: State, choice: torch.Tensor) -> torch.Tensor:
        """[N] whom else to ask in the same round, since it would be asked next, and looked at, when
        the one that `choice` looks at has said anything; -1 where that is nobody. Only of requests
        for which nothing was heard yet: there is one thing that a first answer can be, new."""
        places = state.present.shape[1]
        none = torch.full_like(choice, -1)
        fresh = ~state.asked.any(1) & ~state.pending.any(1) & (state.steps_left > 1)
        able = fresh & (choice // places == LOOK)
        if not able.any():
            return none
        asked = torch.nn.functional.one_hot(choice % places, places).bool()
        then = state._replace(
            asked=asked,
            answer=torch.where(asked, 0, -1),
            rounds_left=state.rounds_left - 1,
            calls_left=state.calls_left - 1,
        )
        following = torch.tensor(self.decoder.scores(_rows(then, able)).argmax(1))
        looks = following // places == LOOK
        none[able] = torch.where(looks, following % places, -1)
        return none


def _rows(state: State, which: torch.Tensor) -> State:
    return State(*(part[which] for part in state))


def deck_of(table: Table, vectors: NDArray[np.float32], cards: Mapping[str, Card]) -> Deck:
    """A table of judged outcomes ready to be played by an exported network, which reads prompts
    itself: what training fits to outcomes (`domain`, `ease`) is left empty.

    Raises `EvaluationError` for a worker without a card.
    """
    missing = [name for name in table.names if name not in cards]
    if missing:
        raise EvaluationError(f"there is no card of {missing[0]!r}: measure one by calibration")
    by_call = ~np.isfinite(table.tokens).any(0)
    tokens = np.stack([cards[name].tokens for name in table.names])
    tokens[by_call] = PER_CALL
    price = prices(table)
    prompts, domains = len(table.prompts), tokens.shape[1]
    return Deck(
        prompt=torch.tensor(vectors, dtype=torch.float32),
        domain=torch.zeros(prompts, domains),
        ease=torch.zeros(prompts, EASE),
        score=torch.tensor(table.score),
        answer=torch.tensor(table.answer.astype(np.int64)),
        tokens=torch.tensor(np.nan_to_num(table.tokens, nan=PER_CALL)),
        skill=torch.tensor(np.stack([cards[name].skill for name in table.names])),
        cost=torch.tensor(tokens * price[:, None] / 1000, dtype=torch.float32),
        price=torch.tensor(price, dtype=torch.float32),
        known=torch.tensor(np.stack([cards[name].known for name in table.names])),
        comparable=torch.tensor(comparable(table)),
    )


def prices(table: Table) -> Floats:
    """What each worker takes now, [W]: USD per 1,000 output tokens and 1,000 requests; where the
    table has no tokens, for a whole call, by size.

    Raises `OutcomesError` for one that is needed and not known.
    """
    table.cost()
    by_call = ~np.isfinite(table.tokens).any(0)
    usd = np.array([worker.usd_out_per_mtok for worker in table.workers])
    size = np.array([worker.params_b for worker in table.workers])
    return np.asarray(np.where(by_call, size / 1000, usd), np.float64)


def comparable(table: Table) -> NDArray[np.bool_]:
    """Of each prompt whether its task is one whose answers can be compared: most prompts have one.
    Where not there is nothing to look at, and one round, as in training."""
    tasks = np.array(table.tasks)
    answered: NDArray[np.bool_] = np.asarray((table.answer >= 0).any(axis=1), np.bool_)
    most = {task: answered[tasks == task].mean() > 0.5 for task in set(table.tasks)}
    return np.array([most[task] for task in table.tasks], dtype=np.bool_)
