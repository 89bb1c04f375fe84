"""A simulated pool: workers that are none, for trials that cost nothing.

    pool = SimulatedPool(described, AnswerKey.of([task]), seed=7)
    environment = Executed(pool, simulated=True)

Each worker is right with a chance that its skill, the question's difficulty, its instruction and
what it is shown give (`reactions.py`), and answers with text that the task's verifier reads. One
number decides for a worker and a question: whoever is right with a poor instruction is so with a
good one too. The same worker, messages and seed always give the same answer.

A worker that is not shown the question passes on what the others say; shown nothing, it says so.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import orjson

from conductor.core import (
    Call,
    Card,
    Destination,
    Price,
    Reply,
    TcpEndpoint,
    Usage,
    Worker,
    WorkerLimits,
)
from conductor.labels import Clearance
from conductor.run.budget import estimate_tokens
from conductor.workers.builtin import vote
from conductor_build.live import briefs
from conductor_build.live.briefs import Brief
from conductor_build.live.known import AnswerKey, Known
from conductor_build.live.reactions import Fit, Reactions, checks, fit_of, restates
from conductor_build.live.replies import reply
from conductor_build.tasks.sketches import DIFFICULTIES

GENERAL = "general"
"""The skill of a worker in domains that its description does not list, if it lists this one."""
_SPREAD = 0.3
"""Standard deviation of the log of an answer's length."""
_INPUT_SHARE = 0.25
"""Price of a token that is read, against one that is written."""
_NOWHERE = Destination("simulated", "local", Clearance(0), {"kind": "local"}, "")


class Described(Protocol):
    """A simulated worker, as a recipe describes it."""

    @property
    def name(self) -> str: ...
    @property
    def skill(self) -> Mapping[str, float]:
        """By domain, the chance of a right answer to a bare question of middle difficulty."""

    @property
    def usd_per_mtok(self) -> float:
        """Of output; input costs a quarter."""

    @property
    def tokens(self) -> int:
        """Of an answer, about."""

    @property
    def tokens_per_s(self) -> float: ...


class SimulatedPool:
    """Implements `core.Caller` for the workers described."""

    def __init__(
        self,
        described: Sequence[Described],
        key: AnswerKey,
        *,
        seed: int,
        reactions: Reactions | None = None,
    ) -> None:
        self._described = {one.name: one for one in described}
        if len(self._described) != len(described):
            raise ValueError("two simulated workers have the same name")
        self._key = key
        self._seed = seed
        self._reactions = reactions or Reactions()

    def workers(self, domains: Sequence[str], outcomes: int, seed: int) -> tuple[Worker, ...]:
        """The workers, their cards as if measured on so many outcomes in each domain."""
        return tuple(
            _worker(one, self.card(one, domains, outcomes, seed))
            for one in self._described.values()
        )

    def card(self, one: Described, domains: Sequence[str], outcomes: int, seed: int) -> Card:
        """A card as a probe would measure it: the share of right answers among `outcomes` bare
        questions of all difficulties."""
        rng = random.Random(f"card/{seed}/{one.name}")  # noqa: S311 - nothing secret
        skill = {}
        for domain in domains:
            chances = [
                self._reactions.chance(
                    skill_of(one, domain), hard, Fit.NONE, right=0, wrong=0, checks=False
                )
                for hard in DIFFICULTIES
            ]
            right = sum(rng.random() < rng.choice(chances) for _ in range(outcomes))
            skill[domain] = round(right / outcomes, 3)
        mean = math.fsum(other.tokens for other in self._described.values()) / len(self._described)
        verbosity = min(100.0, max(0.01, one.tokens / mean))
        return Card(skill, one.tokens_per_s, "measured", round(verbosity, 3))

    @asynccontextmanager
    async def call(self, worker: Worker, call: Call) -> AsyncIterator[Reply]:
        """One answer, at once. Raises nothing of its own."""
        body = orjson.loads(call.body)
        one = self._described[worker.id]
        text = self._answer(one, briefs.read(body["messages"]), body.get("seed"))
        long = self._length(one, call.body)
        most = int(body.get("max_tokens") or long)
        usage = Usage(estimate_tokens(len(call.body)), min(long, most))
        yield reply(text, usage, usage.completion_tokens / one.tokens_per_s)

    def _answer(self, one: Described, brief: Brief, sampled: Any) -> str:
        known = next(filter(None, map(self._key.find, brief.candidates())), None)
        if known is None:
            return _passed_on(brief)
        if restates(brief.instruction):
            return f"{briefs.STATED}{known.example.question}"
        draw = self._draw(one.name, known.example.question, sampled)
        if draw < self._chance(one, known, brief):
            return f"Answer: {known.right}"
        pick = self._draw("wrong", one.name, known.example.question, sampled)
        return f"Answer: {known.wrong[int(pick * len(known.wrong))]}"

    def _chance(self, one: Described, known: Known, brief: Brief) -> float:
        shown = [text for text in brief.results if self._key.find(_bare(text)) is None]
        right = sum(map(known.is_right, shown))
        return self._reactions.chance(
            skill_of(one, known.domain),
            known.difficulty,
            fit_of(brief.instruction, known.domain, known.example.question),
            right=right,
            wrong=len(shown) - right,
            checks=checks(brief.instruction),
        )

    def _length(self, one: Described, told: bytes) -> int:
        """Tokens of the answer to a call: lognormal about what its description says."""
        first, second = self._draw(one.name, told, 1), self._draw(one.name, told, 2)
        normal = math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)  # Box-Muller
        return max(1, round(one.tokens * math.exp(_SPREAD * normal)))

    def _draw(self, *told: object) -> float:
        """A number from 0 to 1, below 1, the same for the same things on every machine."""
        text = "\0".join(map(str, (self._seed, *told))).encode("utf-8", "replace")
        return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest()) / 2**48


def skill_of(one: Described, domain: str) -> float:
    """Its skill in a domain: as listed, else `general`, else the mean of what is listed."""
    listed = one.skill
    if domain in listed:
        return listed[domain]
    return listed.get(GENERAL, math.fsum(listed.values()) / max(1, len(listed)))


def _bare(text: str) -> str:
    return text.rpartition(briefs.STATED)[2]


def _passed_on(brief: Brief) -> str:
    """What can be said without the question: what most of the answers shown say."""
    if not brief.results:
        return "No question is shown."
    return brief.results[vote(brief.results)]


def _worker(one: Described, card: Card) -> Worker:
    price = Price(_INPUT_SHARE * one.usd_per_mtok, one.usd_per_mtok)
    return Worker(
        id=one.name,
        model=one.name,
        destination=_NOWHERE,
        clearance=_NOWHERE.clearance,
        endpoint=TcpEndpoint("127.0.0.1", 0),
        card=card,
        price=price,
        limits=WorkerLimits(),
    )
