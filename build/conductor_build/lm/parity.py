"""How far a model in fewer bits, or in another engine, is from the model that was trained.

    agreement    share of requests to which both write the same plan, greedily and under the mask
    routing      share to which both name the same workers and show them the same, in other words
    kl           of the next token's distribution, from the trained model to the other, in nats:
                 mean and highest over every token that the trained model wrote

Requests are drawn from a seed: random pools with random cards and prices, questions of the tasks
that come with the build stage. No worker is called.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from conductor.core import Candidate, Card, PlanRequest, Price
from conductor.plan.language import parse

if TYPE_CHECKING:
    from torch import Tensor

    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.tokens import Ask, Writer

_DOMAINS = ("code", "general", "math")
MAX_TOKENS = 256
"""After which a plan is ended in the shortest way."""


@dataclass(frozen=True)
class Parity:
    """What a comparison found."""

    requests: int
    tokens: int
    """Tokens that distributions were compared at."""
    agreement: float
    routing: float
    kl_mean: float
    kl_max: float


class Speaker(Protocol):
    """Something that writes plans with a tokenizer's ids."""

    def plans(self, asks: Sequence[Ask]) -> list[tuple[int, ...]]:
        """The likeliest plan for each, the end token included."""

    def logits(self, ask: Ask, written: tuple[int, ...]) -> Tensor:
        """[T, V] before each token of a plan."""


@dataclass(frozen=True)
class Torch:
    """A policy as it is."""

    policy: PlanPolicy

    def plans(self, asks: Sequence[Ask]) -> list[tuple[int, ...]]:
        found = self.policy.write(asks, 1, None, max_tokens=MAX_TOKENS)
        return [one.tokens for (one,) in found]

    def logits(self, ask: Ask, written: tuple[int, ...]) -> Tensor:
        import torch

        model: Any = self.policy.model
        ids = [*self.policy.writer.prefix, *ask.rest, *written]
        with torch.no_grad():
            held = model(input_ids=torch.tensor([ids]), logits_to_keep=len(written) + 1).logits
        found: Tensor = held[0, :-1].float()
        return found


def compare(writer: Writer, trained: Speaker, other: Speaker, asks: Sequence[Ask]) -> Parity:
    """Both write every plan; the other is then led along the trained one's plans."""
    import torch

    ours, theirs = trained.plans(asks), other.plans(asks)
    apart = []
    for ask, plan in zip(asks, ours, strict=True):
        one, two = (
            speaker.logits(ask, plan).double().log_softmax(-1) for speaker in (trained, other)
        )
        apart.append((one.exp() * (one - two)).sum(-1).clamp(min=0))
    kl = torch.cat(apart)
    pairs = list(zip(ours, theirs, strict=True))
    same = sum(one == two for one, two in pairs)
    alike = sum(_routing(writer, one) == _routing(writer, two) for one, two in pairs)
    return Parity(
        len(asks), len(kl), same / len(asks), alike / len(asks), float(kl.mean()), float(kl.max())
    )


def _routing(writer: Writer, written: tuple[int, ...]) -> list[tuple[object, object]]:
    return [(step.worker, step.access) for step in parse(writer.text(written)).steps]


def asks_of(writer: Writer, count: int, seed: int = 0) -> list[Ask]:
    """So many requests, the same for the same seed."""
    from conductor_build.tasks.sketches import Sketches

    questions = Sketches(count, seed)
    rng = random.Random(seed)  # noqa: S311  no secret hangs on it
    return [writer.ask(_request(questions[n].question, n, rng)) for n in range(count)]


def _request(question: str, place: int, rng: random.Random) -> PlanRequest:
    pool = tuple(_candidate(rng) for _ in range(rng.randint(2, 6)))
    weight = round(10 ** rng.uniform(-2.5, 0.3), 4)
    return PlanRequest(
        f"parity-{place}", question, pool, len(question) // 4 + 1, cost_weight=weight
    )


def _candidate(rng: random.Random) -> Candidate:
    skill = {name: round(rng.uniform(0.05, 0.98), 2) for name in _DOMAINS}
    local = rng.random() < 0.5
    price = Price() if local else Price(rng.uniform(0.05, 5), rng.uniform(0.2, 20))
    speed = round(rng.uniform(5, 200), 1)
    return Candidate(Card(skill, speed, "measured"), price, local, 8192)
