"""The pocket conductor: a trained network over worker cards, in milliseconds on a CPU.

    question -> encoder and lexical features --+
    cards, prices, what was heard -------------+--> network, line by line -> plan (`decode.py`)

Around the network stand a few rules, for what it never met in training:

1.  Who cannot hold the conversation and an answer is not asked, unless nobody can.
2.  Where nothing stands and nobody is left to ask, rule 1 falls first, then all are asked again.
3.  Of a large pool it sees `MOST_SEEN` candidates: those that were heard, and who comes nearest to
    the best in some domain.
4.  Lambda, rounds and calls are held within what it was trained on.
5.  Stand-ins are the others, by estimated chance less price, the best first; who was heard already
    only if there is nobody else.
6.  A worker that gave no answer is neither asked again nor counted as one that was wrong: that it
    is down says nothing of the question.

7.  Workers that may see the question only after `redact` it is not shown; a rule says when to go to
    one (`veiled.py`).

Left out: sampling. The same request gets the same plan.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from conductor.core import Candidate, Card, PlanRequest, Price
from conductor.errors import BundleError, PlanError, StartError
from conductor.plan.language import Plan
from conductor.plan.validate import PlanPool
from conductor.planner import facts as factsfile
from conductor.planner import graph, veiled
from conductor.planner.bundle import Runtime
from conductor.planner.decode import asking, keeping
from conductor.planner.encoder import ALIKE, WIDTH
from conductor.planner.encoderfiles import known_encoders, load_encoder
from conductor.planner.engine import Insight, Planned
from conductor.planner.facts import Facts
from conductor.planner.features import (
    FEATURES,
    Embed,
    Flags,
    Floats,
    Numbers,
    Said,
    State,
    costs,
    hear,
    prompt,
    roomy,
    rows_of,
    shortlist,
    skills,
)
from conductor.planner.greedy import Decision, Kind, Network, decide
from conductor.planner.lexical import FEATURES as LEXICAL
from conductor.planner.manifest import Refusal
from conductor.planner.trust import SHIPPED_NAME, resolve
from conductor.workers.catalogue import load_catalogue

MOST_SEEN = 16
"""Time and memory grow with the cube of the pool; training's largest had 11."""
_KEPT_VECTORS = 256
_MOST_USD = 1e12
"""The wire's bound."""


@dataclass(frozen=True)
class Situation:
    """One request made ready: what the network is shown, and what goes back from there."""

    state: State
    rows: Numbers
    """Which candidate each row of the state is."""
    said: Said
    skill: Floats
    """[K, D] of all candidates."""
    cost: Floats


class PocketEngine:
    """`PlanEngine`. Works in a thread of its own, so that the event loop goes on."""

    name = "pocket"

    def __init__(self, network: Network, facts: Facts, embed: Embed, bundle: str = "") -> None:
        self._network = network
        self._facts = facts
        self._bundle = bundle
        self._embed = Remembered(embed)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pocket")

    @classmethod
    def load(
        cls, bundle: Path | None, trusted_keys: Sequence[Path], models: Path, *, threads: int = 2
    ) -> PocketEngine:
        """From a bundle that can be trusted, None: the shipped one, and the encoder's files; tried
        once.

        Raises `BundleError`, `ConfigError` or `StartError`.
        """
        runtime = Runtime(features=FEATURES, encoders=known_encoders(load_catalogue()))
        opened = resolve(bundle or SHIPPED_NAME, trusted_keys, runtime)
        facts = factsfile.decode(opened.read(factsfile.FILE))
        if facts.sentence != WIDTH or facts.lexical != LEXICAL:
            raise BundleError(
                Refusal.FEATURES,
                "it was trained on other features of a question than this release computes: "
                "train it again, or use the release it was built with",
            )
        network = graph.Graph.load(opened.read(graph.FILE))
        encoder = load_encoder(models, opened.manifest.encoder, threads=threads)
        engine = cls(network, facts, encoder.embed, opened.id)
        engine.try_once()
        return engine

    def try_once(self) -> None:
        """Plan something, so that a network that does not work is found at start, and so that the
        first question finds everything warm. Raises `StartError`."""
        cards = (Card({"general": skill}, 1.0, "declared") for skill in (0.0, 0.5, 1.0))
        pool = tuple(Candidate(card, Price(), True, 8192) for card in cards)
        try:
            self.plan_now(PlanRequest("start", "How many?", pool, 4, rounds_left=1))
        except Exception as error:  # noqa: BLE001  ONNX Runtime raises private classes
            kind = type(error).__name__
            raise StartError(f"the bundle's network does not work here ({kind})") from None

    async def ready(self) -> bool:
        return True

    async def plan(self, request: PlanRequest) -> Planned:
        """Raises `PlanError` when no candidate is left, `ArithmeticError` for a broken network."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self.plan_now, request
        )

    def plan_now(self, request: PlanRequest) -> Planned:
        """The same, in the caller's thread. One at a time."""
        return veiled.planned(request, self.name, self._plan)

    def _plan(self, request: PlanRequest) -> Planned:
        pool = PlanPool.of(request)
        if not request.candidates or not pool.max_steps:
            return self._without_asking(pool)
        here = self._situation(request, pool)
        decision = decide(self._network, here.state, _keepable(here))
        if decision is None:
            return self._without_asking(pool)
        return Planned(
            plan=_plan(decision, here, request),
            engine=self.name,
            alternates=_alternates(decision, here),
            look=decision.end is Kind.LOOK,
            insight=_insight(decision, here, request),
            log_prob=min(decision.log_prob, 0.0),
            bundle=self._bundle,
        )

    def _without_asking(self, pool: PlanPool) -> Planned:
        if not pool.may_stop:
            raise PlanError("no candidate to plan with, or no call to one left")
        return Planned(Plan(first=pool.first), self.name)

    def _situation(self, request: PlanRequest, pool: PlanPool) -> Situation:
        facts, said = self._facts, hear(request, self._similar)
        present, asked = _who(request, said)
        low, high = facts.cost_weights
        rounds = 0 if request.one_step else request.rounds_left
        skill = skills(request.candidates, facts)
        cost = costs(request.candidates, request.prompt_tokens, facts)
        state = State(
            prompt=prompt(request.question, self._embed),
            skill=skill,
            cost=cost,
            present=present,
            asked=asked,
            answer=np.where(asked, said.answer, -1),
            pending=np.zeros(len(present), np.bool_),
            weight=np.float32(min(max(request.cost_weight, low), high)),
            rounds_left=np.int64(min(rounds, facts.max_rounds - 1)),
            calls_left=np.int64(min(request.calls_left, facts.max_calls)),
            steps_left=np.int64(pool.max_steps),
        )
        rows = shortlist(state, MOST_SEEN)
        return Situation(rows_of(state, rows), rows, said, skill, cost)

    def _similar(self, one: str, other: str) -> bool:
        """As `Encoder.alike`, each text encoded once."""
        return float(self._embed(one) @ self._embed(other)) >= ALIKE


class Remembered:
    """An encoder that knows the last texts again: later rounds ask about the same question. Keeps
    hashes and vectors, no text. For one thread."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._vectors: OrderedDict[bytes, Floats] = OrderedDict()

    def __call__(self, text: str) -> Floats:
        name = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        vector = self._vectors.pop(name, None)
        if vector is None:
            vector = self._embed(text)
        self._vectors[name] = vector
        if len(self._vectors) > _KEPT_VECTORS:
            self._vectors.popitem(last=False)
        return vector


def _who(request: PlanRequest, said: Said) -> tuple[Flags, Flags]:
    """Who may be asked, and who counts as asked: rules 1, 2 and 6."""
    present, asked = roomy(request), said.asked
    if said.stands is None and not (present & ~asked).any():
        present = np.ones_like(present)
    if said.stands is None and not (present & ~asked).any():
        asked = np.zeros_like(asked)
    silent = asked & np.array([row not in said.steps for row in range(len(asked))], np.bool_)
    return present & ~silent, asked & ~silent


def _keepable(here: Situation) -> Flags:
    return np.array([int(row) in here.said.steps for row in here.rows], np.bool_)


def _plan(decision: Decision, here: Situation, request: PlanRequest) -> Plan:
    first = len(request.heard)
    if decision.end is not Kind.KEEP:
        return asking(first, [int(here.rows[place]) for place in decision.asks])
    stands = here.said.stands
    same = here.said.agreeing[here.said.steps[int(here.rows[decision.place])]]
    # Of answers that agree the one that stands, else the earliest; alone, there is no vote.
    step = stands if stands in same or request.one_step else same[0]
    assert step is not None
    return keeping(first, step, stands)


def _alternates(decision: Decision, here: Situation) -> tuple[int, ...]:
    """Rule 5."""
    state, seen = here.state, decision.seen
    if decision.end is Kind.KEEP:
        return ()
    others = [place for place in range(len(here.rows)) if place not in decision.asks]
    there = [place for place in others if state.present[place]]
    fresh = [place for place in there if not state.asked[place]]
    worth = seen.right.astype(np.float64) - seen.price
    order = sorted(fresh or there, key=lambda place: (-worth[place], place))
    return tuple(int(here.rows[place]) for place in order)


def _insight(decision: Decision, here: Situation, request: PlanRequest) -> Insight:
    """Per request, not per 1,000. Candidates that the network did not see have their card's
    figure, and no chance of being asked."""
    seen, rows = decision.seen, here.rows
    right = here.skill @ seen.domain
    right[rows] = np.where(seen.accepted > 0, seen.accepted, seen.right)
    chosen = np.zeros(len(right))
    chosen[rows] = decision.chances[: Kind.KEEP].sum(0)
    asks = rows[list(decision.asks)].astype(np.int64) if decision.asks else rows[:0]
    cost_usd = float((here.cost[asks].astype(np.float64) @ seen.domain).sum()) / 1000
    return Insight(
        right=_chances(right),
        chosen=_chances(chosen),
        accept=_chance(decision.chances[Kind.KEEP].sum()),
        expected_cost_usd=min(max(cost_usd, 0.0), _MOST_USD),
        expected_quality=_quality(decision),
    )


def _quality(decision: Decision) -> float:
    seen, place = decision.seen, decision.place
    if decision.end is Kind.KEEP:
        return _chance(seen.accepted[place])
    if decision.end is Kind.LAST:
        return _chance(seen.right[place])
    # The best of what will be at hand when the answers are looked at.
    return _chance(max(seen.right[list(decision.asks)].max(), seen.accepted.max()))


def _chances(values: NDArray[np.floating]) -> tuple[float, ...]:
    return tuple(map(_chance, values))


def _chance(value: float | np.floating) -> float:
    return float(min(max(float(value), 0.0), 1.0))
