"""Non-interference of whole requests, by the thousand: whoever is not cleared for a question gets
the same bytes, whatever the secret in it is.

Each world is a random request over random rounds: plans, some of which no mask would let through;
looks, votes, redactions, stand-ins, workers that fail, answers that are streamed. It is conducted
twice, by the real intake, rounds, executor and attempts; the runs differ in the secret and in
nothing else. Workers repeat whatever they are shown, and the planner's own words hold the secret,
so that what could leak does. Pseudonyms are HMACs of the values: they are compared by the order in
which they come. `test_flow_noninterference.py` does the same without I/O, `test_noninterference.py`
to the whole daemon.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from conductor.config import Site
from conductor.core import Failure, PlanRequest
from conductor.errors import ApiError, PlanError, WorkerError
from conductor.plan.language import Access, Builtin, Plan, Step, show
from conductor.plan.mask import Unmasked
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate
from conductor.planner.client import PlannerClient
from conductor.planner.engine import Planned
from conductor.run.conduct import Conducted
from support import fakes
from support.configs import Tree, local_worker, policy_tree, remote_worker, small_site
from support.fakes import Act, Kit, Made, kit, parsed

SECRETS = ("IT60X0542811101000000123456", "DE89370400440532013000")
OUTSIDE = frozenset("cxyz")
"""May not see the question: a worker at home, two abroad, one that is sent it under pseudonyms."""
TOKEN = re.compile("⟦([A-Z]+):[a-z]+⟧")
WORDS = "Look backwards for"
"""Begins what a planner words by itself. No detector finds a secret in it: the label must do."""
WORLDS = 400
REMOVES = {"level": "internal", "compartments": ["pii", "payment"]}


def policy(kind: str) -> Tree:
    """`kind` is that of the redactions that plans may use."""
    tree = policy_tree()
    tree["destinations"]["union"] = {**tree["destinations"]["frontier"], "region": "eu"}
    plain, promised = ({"to": {"kind": "remote", "region": [where]}} for where in ("us", "eu"))
    back = [{"pseudonymise": {"by": "back"}}]
    return {
        **tree,
        "rules": [
            {"id": "plain", "allow": {**plain, "if": {"level_at_most": "internal"}}},
            {
                "id": "promised",
                "allow": promised,
                "obligations": back,
            },
        ],
        "declassifiers": [
            {"id": "steps", "kind": kind, "types": ["iban"], "removes": REMOVES, "steps": True},
            {"id": "back", "kind": "pseudonymise", "types": ["iban"], "removes": REMOVES},
        ],
    }


def workers() -> list[Tree]:
    narrow = {"level": "internal", "compartments": []}
    return [
        local_worker("a", port=9001),
        local_worker("b", port=9002),
        local_worker("c", port=9003, clearance=narrow),
        remote_worker("x"),
        remote_worker("y"),
        {**remote_worker("z"), "destination": "union"},
    ]


@dataclass
class Words:
    """A planner that follows chance, and puts the secret into words wherever it may."""

    chance: random.Random
    secret: str
    plans: list[str] = field(default_factory=list)

    async def plan(self, request: PlanRequest) -> Planned:
        pool = PlanPool.of(request)
        if self.chance.random() < 0.4:  # a planner that was taken over: what runs it must hold
            pool = replace(pool, mask=Unmasked())
        plan = self._fitting(pool)
        others = range(len(request.candidates))
        alternates = tuple(self.chance.sample(others, self.chance.randint(0, len(others))))
        self.plans.append(show(plan).replace(self.secret[::-1], "SECRET"))
        return Planned(plan, "chance", alternates, look=self.chance.random() < 0.4)

    def _fitting(self, pool: PlanPool) -> Plan:
        steps: tuple[Step, ...] = ()
        for _ in range(40):
            tried = (*steps, self._step(pool.first + len(steps), pool))
            try:
                validate(Plan(tried, pool.first), pool)
            except PlanError as fault:
                if "is no answer" not in str(fault):
                    continue
            steps = tried
            if len(steps) == pool.max_steps:
                break
        while steps and steps[-1].worker is Builtin.REDACT:
            steps = steps[:-1]
        return Plan(steps, pool.first)

    def _step(self, number: int, pool: PlanPool) -> Step:
        chance = self.chance
        known = tuple(one for one in range(number) if chance.random() < 0.4)
        if number and chance.random() < 0.6:
            known = (chance.randrange(number),)
        kind = chance.random()
        if kind < 0.35 and Builtin.REDACT in pool.builtins:
            one = chance.randrange(-1, number)
            return Step(Builtin.REDACT, Access(True) if one < 0 else Access(steps=(one,)))
        if kind < 0.45 and known:
            return Step(Builtin.VOTE, Access(steps=known))
        access = Access(chance.random() < 0.3, known)
        worded = f"{WORDS} {self.secret[::-1]} in it."
        text = chance.choice(["", "", Template.SOLVE.value, Template.VERIFY.value, worded])
        return Step(chance.randrange(pool.workers), access, text)


def repeats(made: Made) -> str:
    """All lines that it was shown, each once, but for the planner's words: those a redaction would
    let pass, as it would whatever a willing worker spells backwards."""
    lines = f"{made.worker} saw\n{made.seen}".split("\n")
    return "\n".join(dict.fromkeys(line for line in lines if WORDS not in line))


async def conducted(box: Kit, seed: int, secret: str) -> tuple[list[str], list[str]]:
    """What was sent to whom is not cleared, in order; and the plans."""
    chance = random.Random(seed)
    planner = Words(random.Random(seed + 1), secret)
    box.intake._planner = cast(PlannerClient, planner)
    box.caller.answer = repeats
    box.caller._acts = {name: acts(chance) for name in "abcxyz"}
    stream, extra = chance.random() < 0.5, {"stop": [secret], "temperature": 0.5}
    request, raw = parsed(text=f"I am {secret}.", stream=stream, user=secret, **extra)
    try:
        async with box.conduct.answer(Conducted("r"), request, raw, box.key, None) as begun:
            if begun.chunks is not None:
                async for _ in begun.chunks:
                    pass
    except (ApiError, WorkerError):
        pass
    seen = [
        f"{made.worker} {json.dumps(made.body, ensure_ascii=False, sort_keys=True)}"
        for made in box.caller.calls
        if made.worker in OUTSIDE
    ]
    # Who is sent the question under pseudonyms is sent the planner's words as well.
    allowed = [one.replace(secret[::-1], "SECRET") if one[0] == "z" else one for one in seen]
    return plainly(allowed), planner.plans


def acts(chance: random.Random) -> list[Act]:
    failing = Act(fails=WorkerError(Failure.SERVER_ERROR))
    return [failing if chance.random() < 0.2 else Act() for _ in range(8)]


def plainly(seen: list[str]) -> list[str]:
    """With numbers for pseudonyms."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"[{match[1]} {numbers.setdefault(match[0], len(numbers))}]"

    return [TOKEN.sub(number, one) for one in seen]


@pytest.fixture(params=["redact", "pseudonymise"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return small_site(tmp_path, workers=workers(), policy=policy(request.param))


async def test_who_is_not_cleared_is_sent_the_same_bytes_whatever_the_secret(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fakes, "small_site", lambda *_, **__: site)
    reached: Counter[str] = Counter()
    for seed in range(WORLDS):
        one, other = [await conducted(kit(tmp_path), seed, secret) for secret in SECRETS]
        assert one == other, seed
        said: Any = "".join(one[0])
        assert not any(secret in said or secret[::-1] in said for secret in SECRETS), seed
        reached.update(call[0] for call in one[0])
        reached["redactions"] += "redact" in "".join(one[1])
        reached["rounds"] += len(one[1]) > 1
    assert all(reached[name] > WORLDS / 20 for name in (*OUTSIDE, "redactions", "rounds")), reached
