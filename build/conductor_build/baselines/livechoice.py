"""Who is cheap, able or worth most in a game, as training games have told.

Every worker answers the same training games alone; judged games decide about nothing. What a worker
will cost in a game follows from the tokens that it took in training and the price that it has in
that game, so a baseline knows a changed price as a conductor does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from conductor.core import Price
    from conductor_build.live.environment import Outcome
    from conductor_build.live.game import Game

EVERYTHING = ""
"""In the place of a domain: all of them."""


@dataclass(frozen=True)
class Record:
    """One worker alone, means over the training games that were not void."""

    games: int
    quality: float
    prompt_tokens: float
    output_tokens: float

    @property
    def tokens(self) -> float:
        return self.prompt_tokens + self.output_tokens

    def cost_usd_per_1k(self, price: Price) -> float:
        """Of 1,000 such answers at a price."""
        return (
            self.prompt_tokens * price.input_usd_per_mtok
            + self.output_tokens * price.output_usd_per_mtok
        ) / 1e3


NOTHING = Record(0, 0.0, 0.0, 0.0)
"""Of a worker none of whose answers could be judged: chosen last."""


@dataclass(frozen=True)
class Offer:
    """What one worker of a game is expected to give, by its ordinal there."""

    worker: int
    record: Record
    cost: float

    def worth(self, lam: float) -> float:
        """Expected utility."""
        return self.record.quality - lam * self.cost


@dataclass(frozen=True)
class Measured:
    """Records by worker and domain, and over all domains."""

    records: Mapping[tuple[str, str], Record]

    @classmethod
    def of(cls, answers: Iterable[tuple[str, str, Outcome]]) -> Measured:
        """From worker, domain and outcome of every answer."""
        grouped: dict[tuple[str, str], list[Outcome]] = {}
        for worker, domain, outcome in answers:
            if outcome.quality is not None:
                for kind in (domain, EVERYTHING):
                    grouped.setdefault((worker, kind), []).append(outcome)
        return cls({key: _record(outcomes) for key, outcomes in grouped.items()})

    def offers(self, game: Game, domain: str = EVERYTHING) -> tuple[Offer, ...]:
        """Of the workers that may see the question, in the game's order. A domain that training
        games did not have counts as everything."""
        found = []
        for place, (worker, seen) in enumerate(
            zip(game.workers, game.request.candidates, strict=True)
        ):
            overall = self.records.get((worker.id, EVERYTHING), NOTHING)
            record = self.records.get((worker.id, domain), overall)
            if not seen.veiled:
                found.append(Offer(place, record, record.cost_usd_per_1k(seen.price)))
        return tuple(found)


def _record(outcomes: Sequence[Outcome]) -> Record:
    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    return Record(
        len(outcomes),
        mean(one.quality or 0.0 for one in outcomes),
        mean(one.prompt_tokens for one in outcomes),
        mean(one.output_tokens for one in outcomes),
    )


def best(offers: Sequence[Offer], lam: float) -> Offer:
    """The one of highest expected utility; of equal ones the cheaper, then the first."""
    return max(offers, key=lambda one: (one.record.games > 0, one.worth(lam), -one.cost))


def ablest(offers: Sequence[Offer]) -> list[Offer]:
    """By expected quality, the highest first; of equal ones the cheaper."""
    return sorted(offers, key=lambda one: (-one.record.quality, one.cost))


def cheapest(offers: Sequence[Offer]) -> Offer:
    """The one of lowest expected cost; of equal ones the abler."""
    return min(offers, key=lambda one: (not one.record.games, one.cost, -one.record.quality))
