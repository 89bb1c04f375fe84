"""A bundle opened for judging: its network, what it was trained on, and cards of its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor.errors import BundleError
from conductor.planner import facts, graph
from conductor.planner.encoder import WIDTH
from conductor.planner.facts import Facts
from conductor.planner.lexical import FEATURES
from conductor.planner.manifest import Refusal
from conductor.run.exchange import Limits
from conductor_build import record
from conductor_build.cards import measure
from conductor_build.pocket.conductor import Card, Playing
from conductor_build.pocket.decoder import Decoder
from conductor_build.seen import PATH as SEEN
from conductor_build.seen import Seen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from conductor.planner.bundle import Bundle
    from conductor_build.baselines.plays import Prompts


@dataclass(frozen=True, eq=False)
class Opened:
    """Everything that judging needs of a bundle. `cards` are those of the workers it was trained
    with, measured on its training outcomes."""

    bundle: Bundle
    facts: Facts
    decoder: Decoder
    training: Prompts
    cards: Mapping[str, Card]
    seen: Seen

    @classmethod
    def of(cls, bundle: Bundle) -> Opened:
        """Raises `BundleError` when it is whole, but not made for this release."""
        own = _facts(bundle)
        training = record.decode(bundle.read(record.PATH))
        return cls(
            bundle=bundle,
            facts=own,
            decoder=Decoder(bundle.read(graph.FILE), features=own.width, domains=len(own.domains)),
            training=training,
            cards=_known(training, tuple(domain.name for domain in own.domains)),
            seen=Seen.from_bytes(bundle.read(SEEN)),
        )

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(domain.name for domain in self.facts.domains)

    @property
    def limits(self) -> Limits:
        """The highest of training."""
        return Limits(max_rounds=self.facts.max_rounds, max_calls=self.facts.max_calls)

    def conductor(
        self, vectors: NDArray[np.float32], cards: Mapping[str, Card], limits: Limits
    ) -> Callable[[float], Playing]:
        """The bundle's policy for any lambda, over prompts with these features [P, F].

        The network is told a lambda within the range that it was trained on, as in the daemon.
        """
        low, high = self.facts.cost_weights

        def at(lam: float) -> Playing:
            return Playing(self.decoder, vectors, cards, limits, min(max(lam, low), high))

        return at


def _known(training: Prompts, domains: tuple[str, ...]) -> dict[str, Card]:
    cards = measure(training.table, domains)
    return {
        name: Card(cards.skill[place], cards.tokens[place], cards.counts[place] > 0)
        for place, name in enumerate(cards.names)
        if cards.counts[place].sum() > 0
    }


def _facts(bundle: Bundle) -> Facts:
    read = facts.decode(bundle.read(facts.FILE))
    if (read.sentence, read.lexical) != (WIDTH, FEATURES):
        raise BundleError(
            Refusal.FEATURES,
            "it was trained on other features than this release computes: train it again, or use "
            "the release it was built with",
        )
    return read
